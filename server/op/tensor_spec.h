// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "spdld/arena.h"

namespace spdld {

using DType = wire::DType;
using FieldKind = wire::FieldKind;

std::string_view dtype_name(DType dtype);                     // "uint8", as numpy and torch say
std::string shape_text(std::span<const std::int64_t> shape);  // "[3, 4]"
Result<DType> parse_dtype(std::string_view name);

// How the pixels of one image lie in a row of a batch: N is the row.
enum class Layout { kNHWC, kNCHW };

// One named tensor of a sample: its shape is that of one row.
struct TensorSpec {
  std::string name;
  FieldKind kind = FieldKind::kDense;
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> shape = {};  // -1 where rows of a ragged tensor differ
  bool text = false;                     // of kind bytes: each row is UTF-8
  bool padded = false;                   // ragged, but the rows of a batch have one shape
  // Of what is not dense: what one row and what all rows of a batch may take, and the setting that
  // one raises for larger rows.
  std::uint64_t max_row_bytes = 0;
  bool is_loose = false;  // no row need take as much as max_row_bytes
  std::uint64_t max_bytes = 0;
  std::string bound_name = {};
  // The parameter of a stage that max_row_bytes follows from: "decode_audio.max_seconds". Empty:
  // none.
  std::string bounded_by = {};
  // Of such a tensor that needs a bound: one that a row seldom needs, for messages.
  std::string ample_row = "4KiB";
  // Of rows that differ in size though the pipeline could give them one shape: what they are
  // ("images"), which of them differ where that is known, and how they get one.
  std::string noun = {};
  std::string sizes = {};
  std::string to_one_shape = {};
  // Of such rows that all have one shape as far as the source's index, or a look at some items,
  // tells: that one. They are stacked where no other way is asked for.
  std::vector<std::int64_t> seen_shape = {};

  // Of a row, where all have one shape.
  std::uint64_t row_bytes() const;
  // How such rows get one shape, or how else they are collated.
  std::string mend() const;

  // Whether both look the same to who reads them, whatever their bounds are.
  friend bool operator==(const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape &&
           a.text == b.text && a.padded == b.padded;
  }
};

}  // namespace spdld

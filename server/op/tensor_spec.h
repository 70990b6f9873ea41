// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "spdld/arena.h"

namespace spdld {

using DType = wire::DType;
using FieldKind = wire::FieldKind;

std::string_view dtype_name(DType dtype);  // "uint8", as numpy and torch say
Result<DType> parse_dtype(std::string_view name);

// How the pixels of one image lie in a row of a batch: N is the row.
enum class Layout { kNHWC, kNCHW };

// One named tensor of a sample: its shape is that of one row.
struct TensorSpec {
  std::string name;
  FieldKind kind = FieldKind::kDense;
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> shape = {};

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

}  // namespace spdld

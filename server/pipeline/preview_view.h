// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "op/tensor_spec.h"

namespace spdld::pipeline {

// One batch as the model would see it, for `spdlctl preview` and `show`.
struct PreviewView {
  // Of a tensor that is not dense: where its rows lie in its data.
  struct Packed {
    std::vector<std::uint64_t> begins;  // of each row, and behind the last; in bytes
    std::vector<std::int64_t> shapes;   // of each row, if it is ragged
  };

  std::vector<TensorSpec> tensors;
  std::vector<std::vector<std::byte>> data;  // rows, per tensor
  std::vector<Packed> packed;                // per tensor
  std::vector<std::int64_t> indices;
  std::vector<bool> valid;  // false: padding, or in the place of an item that failed
  std::vector<std::string> uris;
  std::vector<std::string> classes;
  // Of each tensor: the functions of the user's that it has gone through, and the ops behind them;
  // empty: it is as the source has it.
  std::vector<std::string> made_by = {};
};

}  // namespace spdld::pipeline

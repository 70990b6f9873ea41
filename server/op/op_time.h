// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace spdld {

// The time of ops that run as one, of the rows that were timed: one in 64.
struct OpTime {
  std::string field;  // that they make: "image"
  std::string ops;    // "decode_image", "resize + normalize"
  std::uint64_t rows = 0;
  double spent_s = 0;
};

}  // namespace spdld

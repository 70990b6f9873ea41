// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "op/value.h"

namespace spdld::source {

enum class CellFit {
  kYes,
  kNo,
  kHuge,  // an integer, or a list with one, that no int64 holds
};

// Reads cells of CSV: what they say as a value of some type. One thread.
//   int64     decimal, -12; float64: also 1.5, 1e-3, nan, inf
//   bool      true, false; or True, False; or TRUE, FALSE
//   lists     of such numbers, as JSON has them: [1, 2]
// Spaces and tabs around do not count, but belong to a text.
class CellReader {
 public:
  // kYes: value() is what the cell says, valid until the next call and as long as the cell is.
  CellFit read(std::string_view cell, ValueType type);
  const Value& value() const { return value_; }

  // Whether it is an integer that begins with zeros, as codes do: 00712.
  static bool is_code(std::string_view cell);

 private:
  template <typename T>
  CellFit read_list(std::string_view cell, std::vector<T>& list);

  Value value_;
  std::vector<std::int64_t> integers_;
  std::vector<double> numbers_;
};

}  // namespace spdld::source

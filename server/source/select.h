// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "op/select_spec.h"
#include "source/columns.h"
#include "source/where.h"

namespace spdld::source {

// What there is to select from.
struct Selectable {
  std::uint64_t rows = 0;
  const Columns& columns;  // as many rows, or no columns at all
  // The relative uri of a row; only called where a split asks for it.
  std::function<std::string(std::uint64_t)> uri;
  ClassNames classes = {};
  UnknownNames unknown = {};
};

// Where in [0, 1) a uri stands for splits: XXH3 of its bytes, with a seed of its own, over 2^64.
// Changing what it yields moves items of every user from one part to another.
double split_share(std::string_view uri);

// The rows that `spec` selects, in their order. An error says how many each step left if none is
// left in the end, or what is wrong with a step.
Result<std::vector<std::uint64_t>> select_rows(const SelectSpec& spec, const Selectable& from);

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/select_spec.h"
#include "source/item/columns.h"
#include "source/select/where.h"

namespace spdld::source {

// What there is to select from.
struct Selectable {
  std::uint64_t rows = 0;
  const Columns& columns;  // as many rows, or no columns at all
  // Source::split_hash() of a row; only called where a split asks for it.
  std::function<std::uint64_t(std::uint64_t)> split_hash;
  ClassNames classes = {};
  UnknownNames unknown = {};
};

// The rows that `spec` selects, in their order. An error says how many each step left if none is
// left in the end, or what is wrong with a step.
Result<std::vector<std::uint64_t>> select_rows(const SelectSpec& spec, const Selectable& from);

}  // namespace spdld::source

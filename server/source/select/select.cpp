// SPDX-License-Identifier: Apache-2.0
#include "source/select/select.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "source/item/item_hashes.h"

namespace spdld::source {
namespace {

using Kept = std::vector<std::uint64_t>;
using Part = SelectSpec::Split::Part;

std::string_view part_name(Part part) {
  switch (part) {
    case Part::kTrain: return "train";
    case Part::kVal: return "val";
    case Part::kTest: return "test";
  }
  return "";
}

Part part_of(const SelectSpec::Split& split, double share) {
  if (share < split.val) return Part::kVal;
  return share < split.val + split.test ? Part::kTest : Part::kTrain;
}

Status check_shares(const SelectSpec::Split& split) {
  // Also if one of them is nan.
  if (split.val >= 0 && split.test >= 0 && split.val + split.test <= 1) return {};
  return {
      Code::kInvalidArgument,
      "select.split: val and test are shares of the items: not below 0, and together at most 1"};
}

}  // namespace

Result<Kept> select_rows(const SelectSpec& spec, const Selectable& from) {
  SPDLD_CHECK(from.columns.size() == 0 || from.columns.rows() == from.rows);
  Kept rows(from.rows);
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  std::string left;
  const auto tell = [&](const std::string& step) {
    left += (left.empty() ? "" : ", ") + step + " leaves " + std::to_string(rows.size());
  };
  if (!spec.where.empty()) {
    SPDLD_ASSIGN(const Where where,
                 Where::compile(spec.where, from.columns, from.classes, from.unknown));
    std::erase_if(rows, [&](std::uint64_t row) { return !where.matches(from.columns, row); });
    tell("where");
  }
  if (spec.split) {
    SPDLD_TRY(check_shares(*spec.split));
    std::erase_if(rows, [&](std::uint64_t row) {
      return part_of(*spec.split, split_share(from.split_hash(row))) != spec.split->part;
    });
    tell("split (part " + std::string(part_name(spec.split->part)) + ")");
  }
  if (spec.skip != 0) {
    const auto skipped = std::min<std::uint64_t>(spec.skip, rows.size());
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(skipped));
    tell("skip " + std::to_string(spec.skip));
  }
  if (spec.take) {
    rows.resize(std::min<std::uint64_t>(*spec.take, rows.size()));
    tell("take " + std::to_string(*spec.take));
  }
  rows.shrink_to_fit();
  if (!rows.empty() || from.rows == 0) return rows;
  return error(Code::kInvalidArgument,
               "select leaves none of " + std::to_string(from.rows) + " items: " + left);
}

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/plan/rejection.h"
#include "op/field_task.h"
#include "op/op.h"
#include "op/registry.h"
#include "source/select/where.h"

namespace spdld::engine {

// A condition that rows must fulfil, on values that may be known only once a row was fetched.
// Immutable; used by every worker at once.
struct RowFilter {
  source::Where where;
  std::vector<std::size_t> values;  // of a row: what the names in the condition stand for
  std::string text;                 // the condition as it was written
  Rejection rejection;

  // Tasks that make values of the row must have run.
  bool passes(const SampleInput& sample) const {
    return where.matches([&](std::size_t name) { return sample.value(values[name]); });
  }
};

// The stage that such a filter comes from, which works on no field's chain.
class FilterOp final : public Op {
 public:
  FilterOp(std::string where, bool replaces)
      : Op({}), where_(std::move(where)), replaces_(replaces) {}
  Status plan(FieldTable&, const StageKey&, std::string&) const override { return {}; }

  // On the fields as they are at the stage, which gives the filter its place. An error says what is
  // wrong with the condition.
  Result<RowFilter> compile(const FieldTable& table, const source::ClassNames& classes) const;

 private:
  std::string where_;
  bool replaces_;
};

OpInfo filter_op();

}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "engine/plan/plan.h"
#include "engine/row.h"
#include "op/field_task.h"
#include "source/item/source.h"

namespace spdld::engine {

// A row as the tasks of its run see it.
class RowSample final : public SampleInput {
 public:
  // `made` has room for the values that the plan's tasks make. All outlive this.
  RowSample(const Plan& plan, const source::Source& source, const RowFetch& fetch, const Row& row,
            std::span<Value> made)
      : plan_(plan), source_(source), fetch_(fetch), row_(row), made_(made) {
    dropped = row.dropped;
  }

  const Row& row() const { return row_; }
  // Whether the row has no such part, which it need not have.
  bool is_absent(std::size_t i) const {
    return i < kFirstArray ? row_.bytes.parts.is_absent(i) : row_.calls->is_absent(i - kFirstArray);
  }

  const PackedRow* array(std::size_t i) const override { return &row_.calls->made(i); }

  std::span<const std::byte> part(std::size_t i) const override {
    return i < kFirstArray ? fetch_.part(row_.bytes, i) : row_.calls->made(i - kFirstArray).view;
  }
  const MediaClip* clip(std::size_t i) const override {
    return i < kFirstArray ? fetch_.clip(row_.bytes, i) : nullptr;
  }
  Value value(std::size_t i) const override {
    const std::size_t first = plan_.first_made_value;
    return i < first ? source_.value(row_.item, i) : made_[i - first];
  }
  void set_value(std::size_t i, const Value& value) override {
    made_[i - plan_.first_made_value] = value;
  }

 private:
  const Plan& plan_;
  const source::Source& source_;
  const RowFetch& fetch_;
  const Row& row_;
  const std::span<Value> made_;
};

}  // namespace spdld::engine

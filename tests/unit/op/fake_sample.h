// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "op/field_task.h"

namespace spdld::testing {

// A sample of one part, whose values the test sets as tasks do.
class FakeSample final : public SampleInput {
 public:
  std::span<const std::byte> part(std::size_t) const override {
    return std::as_bytes(std::span(bytes));
  }
  Value value(std::size_t i) const override { return values.at(i); }
  void set_value(std::size_t i, const Value& value) override { values[i] = value; }

  std::string bytes;
  std::map<std::size_t, Value> values;
};

// Where a task puts the rows of its tensors, of which each may take `max_bytes`.
class FakeOutput {
 public:
  explicit FakeOutput(const FieldTask& task, std::uint64_t max_bytes = 1 << 20)
      : tensors_(task.tensors()), rows_(tensors_.size()), slots_(tensors_.size()) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].max_row_bytes = max_bytes;
      if (tensors_[i].kind != FieldKind::kDense) {
        outputs_.emplace_back(tensors_[i], rows_[i]);
        continue;
      }
      std::size_t bytes = wire::dtype_bytes(tensors_[i].dtype);
      for (const std::int64_t extent : tensors_[i].shape) bytes *= static_cast<std::size_t>(extent);
      slots_[i].resize(bytes);
      outputs_.emplace_back(tensors_[i], slots_[i].data());
    }
  }

  std::span<RowOutput> outputs() { return outputs_; }
  std::span<const std::byte> bytes(std::size_t tensor) const {
    if (tensors_[tensor].kind == FieldKind::kDense) return slots_[tensor];
    return rows_[tensor].view;
  }
  std::vector<std::int64_t> shape(std::size_t tensor) const {
    const auto& extents = rows_[tensor].shape;
    return {extents.begin(),
            extents.begin() + static_cast<std::ptrdiff_t>(tensors_[tensor].shape.size())};
  }

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<PackedRow> rows_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<RowOutput> outputs_;
};

}  // namespace spdld::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "op/tensor_spec.h"
#include "spdld/arena.h"

namespace spdld::engine {

// Where the tensors of a batch lie in its slot. The sample's own fields come first, in the order
// given, then the two that tell about the rows (wire::kIndexField, wire::kValidField). Immutable.
class BatchLayout {
 public:
  // The values of a tensor whose rows differ in size have room for its max_bytes.
  static Result<BatchLayout> make(const std::vector<TensorSpec>& tensors, std::uint64_t rows);

  const std::vector<wire::FieldLayout>& fields() const { return fields_; }
  std::uint64_t rows() const { return rows_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  // Of one row of fields()[field], which is dense.
  std::uint64_t row_bytes(std::size_t field) const { return row_bytes_[field]; }

  std::byte* row(std::byte* slot, std::size_t field, std::uint64_t row) const {
    return slot + fields_[field].offset + row * row_bytes_[field];
  }
  void set_index(std::byte* slot, std::uint64_t row, std::int64_t index) const;
  void set_valid(std::byte* slot, std::uint64_t row, bool valid) const;

 private:
  void append(const TensorSpec& tensor, std::uint32_t flags);

  std::vector<wire::FieldLayout> fields_;
  std::vector<std::uint64_t> row_bytes_;
  std::uint64_t rows_ = 0;
  std::uint64_t slot_bytes_ = 0;
};

}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/batch_layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text/counted.h"

namespace spdld::engine {
namespace {

// Batches beyond this are a mistake in the pipeline; it also keeps the sums below from overflowing.
constexpr std::uint64_t kMaxFieldBytes = std::uint64_t{1} << 40;

// What one Schema frame can tell (wire.h).
constexpr std::size_t kMaxFields = 200;

std::uint64_t align(std::uint64_t offset) {
  return (offset + wire::kFieldAlignment - 1) / wire::kFieldAlignment * wire::kFieldAlignment;
}

std::string human(std::uint64_t bytes) { return std::to_string(bytes / 1000000) + " MB"; }

Result<std::uint64_t> dense_row_bytes(const TensorSpec& tensor, std::uint64_t rows) {
  std::uint64_t bytes = wire::dtype_bytes(tensor.dtype);
  for (const std::int64_t extent : tensor.shape) {
    SPDLD_CHECK(extent >= 0);
    if (extent != 0 && bytes > kMaxFieldBytes / static_cast<std::uint64_t>(extent))
      return error(Code::kInvalidArgument, "'" + tensor.name + "': one row is larger than " +
                                               human(kMaxFieldBytes) + "; make it smaller");
    bytes *= static_cast<std::uint64_t>(extent);
  }
  if (bytes > kMaxFieldBytes / rows)
    return error(Code::kInvalidArgument, "'" + tensor.name + "': " + counted(rows, "row") + " of " +
                                             counted(bytes, "byte") +
                                             " are too large for one batch; lower batch.size");
  return bytes;
}

}  // namespace

Result<BatchLayout> BatchLayout::make(const std::vector<TensorSpec>& tensors, std::uint64_t rows) {
  SPDLD_CHECK(rows > 0);
  BatchLayout layout;
  layout.rows_ = rows;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name.size() >= sizeof(wire::FieldLayout::name))
      return error(Code::kInvalidArgument, "the field name '" + tensor.name + "' is longer than " +
                                               std::to_string(sizeof(wire::FieldLayout::name) - 1) +
                                               " bytes");
    if (tensor.shape.size() > wire::kMaxRank)
      return error(Code::kInvalidArgument, "'" + tensor.name + "' has more than " +
                                               std::to_string(wire::kMaxRank) + " dimensions");
    if (tensor.kind == FieldKind::kDense) {
      if (auto bytes = dense_row_bytes(tensor, rows); !bytes)
        return tl::unexpected<Status>(bytes.error());
    } else if (tensor.max_bytes > kMaxFieldBytes) {
      return error(Code::kInvalidArgument, "'" + tensor.name + "': " + tensor.bound_name +
                                               " asks for more than " + human(kMaxFieldBytes));
    }
    layout.append(
        tensor, (tensor.text ? wire::kFieldText : 0U) | (tensor.padded ? wire::kFieldPadded : 0U));
  }
  if (layout.fields_.size() + 2 > kMaxFields)
    return error(Code::kInvalidArgument, "a sample has " + counted(layout.fields_.size(), "field") +
                                             ", and a batch may have " +
                                             std::to_string(kMaxFields - 2) + ": leave some out");
  layout.append({.name = wire::kIndexField, .dtype = DType::kInt64}, wire::kFieldMeta);
  layout.append({.name = wire::kValidField, .dtype = DType::kBool}, wire::kFieldMeta);
  return layout;
}

void BatchLayout::append(const TensorSpec& tensor, std::uint32_t flags) {
  wire::FieldLayout field{};
  std::memcpy(field.name, tensor.name.data(), tensor.name.size());
  field.kind = tensor.kind;
  field.dtype = tensor.dtype;
  field.ndim = static_cast<std::uint32_t>(tensor.shape.size());
  field.flags = flags;
  std::copy(tensor.shape.begin(), tensor.shape.end(), field.shape);

  std::uint64_t row_bytes = 0;
  if (tensor.kind == FieldKind::kDense) {
    row_bytes = wire::dtype_bytes(tensor.dtype);
    for (const std::int64_t extent : tensor.shape) row_bytes *= static_cast<std::uint64_t>(extent);
    field.capacity_bytes = row_bytes * rows_;
  } else {
    field.capacity_bytes = tensor.max_bytes;
    field.offsets_offset = align(slot_bytes_);
    slot_bytes_ = field.offsets_offset + (rows_ + 1) * sizeof(std::int64_t);
  }
  if (tensor.kind == FieldKind::kRagged) {
    field.shapes_offset = align(slot_bytes_);
    slot_bytes_ = field.shapes_offset + rows_ * tensor.shape.size() * sizeof(std::int64_t);
  }
  field.offset = align(slot_bytes_);
  slot_bytes_ = align(field.offset + field.capacity_bytes);
  fields_.push_back(field);
  row_bytes_.push_back(row_bytes);
}

void BatchLayout::set_index(std::byte* slot, std::uint64_t row, std::int64_t index) const {
  std::memcpy(this->row(slot, fields_.size() - 2, row), &index, sizeof index);
}

void BatchLayout::set_valid(std::byte* slot, std::uint64_t row, bool valid) const {
  *this->row(slot, fields_.size() - 1, row) = static_cast<std::byte>(valid);
}

}  // namespace spdld::engine

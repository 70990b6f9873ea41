// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/packing.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text/counted.h"
#include "engine/plan/pad_value.h"

namespace spdld::engine {
namespace {

using Shape = std::array<std::int64_t, wire::kMaxRank>;

template <typename T>
void store(std::byte* at, std::uint64_t index, T value) {
  std::memcpy(at + index * sizeof value, &value, sizeof value);
}

// Largest where it overflows: shapes are the data's.
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~std::uint64_t{0} : product;
}

// Zero if any extent is.
std::uint64_t elements(const Shape& shape, std::size_t rank) {
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    if (shape[i] == 0) return 0;
    count = times(count, static_cast<std::uint64_t>(shape[i]));
  }
  return count;
}

// Copies a block of shape `from` into the corner of one of shape `to`, C order, both of `rank`
// extents.
void copy_corner(const std::byte* in, const Shape& from, std::byte* out, const Shape& to,
                 std::size_t rank, std::uint64_t element_bytes) {
  if (elements(from, rank) == 0) return;
  const std::uint64_t run_bytes = static_cast<std::uint64_t>(from[rank - 1]) * element_bytes;
  Shape at{};
  while (true) {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < rank; ++i)
      offset = offset * static_cast<std::uint64_t>(to[i]) + static_cast<std::uint64_t>(at[i]);
    std::memcpy(out + offset * element_bytes, in, run_bytes);
    in += run_bytes;
    std::size_t i = rank - 1;
    while (i > 0 && ++at[i - 1] == from[i - 1]) at[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace

Packing::Packing(std::shared_ptr<const Plan> plan, std::uint64_t rows)
    : plan_(std::move(plan)), bytes_(plan_->tensors.size()), kept_(rows), count_(rows) {
  std::size_t next = 0;
  for (const TensorSpec& tensor : plan_->tensors) {
    first_of_.push_back(next);
    if (tensor.kind != FieldKind::kDense) next += rows;
  }
  rows_.resize(next);
}

void Packing::made(std::uint64_t index) {
  for (std::size_t i = 0; i < plan_->tensors.size(); ++i) {
    if (plan_->tensors[i].kind == FieldKind::kDense) continue;
    PackedRow& made = row(i, index);
    // It waits for the batch's other rows, which may wait for room; the slot bounds it from here
    // on.
    made.bytes.uncount();
    bytes_[i].fetch_add(made.view.size());
    if (!overflows(i)) continue;
    made.bytes.shrink(0);
    made.view = {};
  }
}

void Packing::made(std::uint64_t index, ByteBuffer& bytes) {
  made(index);
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    // The batch fails before anybody looks at the views.
    if (overflows(i)) return bytes.shrink(0);
  }
  std::swap(kept_[index], bytes);
  kept_[index].uncount();
}

Status Packing::pack(std::byte* slot, std::uint64_t rows) const {
  SPDLD_CHECK(rows <= count_);
  for (std::size_t i = 0; i < plan_->tensors.size(); ++i) SPDLD_TRY(check(i, bytes_[i].load()));
  for (std::size_t i = 0; i < plan_->tensors.size(); ++i) {
    const TensorSpec& tensor = plan_->tensors[i];
    if (plan_->sources[i].kind == TensorSource::Kind::kLength) write_lengths(slot, i, rows);
    if (tensor.kind == FieldKind::kDense) continue;
    SPDLD_TRY(tensor.padded ? pad_rows(slot, i, rows) : pack_rows(slot, i, rows));
  }
  return {};
}

bool Packing::overflows(std::size_t tensor) const {
  return bytes_[tensor].load() > plan_->tensors[tensor].max_bytes;
}

Status Packing::check(std::size_t tensor, std::uint64_t bytes) const {
  const TensorSpec& spec = plan_->tensors[tensor];
  if (bytes <= spec.max_bytes) return {};
  const std::string room = std::to_string(spec.max_bytes);
  return {Code::kResourceExhausted,
          "the rows of '" + spec.name + "' take " +
              (bytes == ~std::uint64_t{0} ? "more bytes than there are"
                                          : std::to_string(bytes) + " bytes") +
              (spec.padded ? ", each as large as the largest of the batch," : ",") +
              (plan_->spec.batch.max_bytes > 0
                   ? " and batch.max_bytes is " + room + ": raise it, with room for larger rows,"
                   : " and a batch has room for " + room +
                         ": set batch.max_bytes to what they may take together,") +
              " or lower batch.size"};
}

Status Packing::pack_rows(std::byte* slot, std::size_t tensor, std::uint64_t rows) const {
  const wire::FieldLayout& field = plan_->layout.fields()[tensor];
  const std::uint64_t element = wire::dtype_bytes(field.dtype);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const PackedRow& row = rows_[first_of_[tensor] + i];
    store(slot + field.offsets_offset, i, static_cast<std::int64_t>(bytes / element));
    for (std::uint32_t d = 0; field.shapes_offset != 0 && d < field.ndim; ++d)
      store(slot + field.shapes_offset, i * field.ndim + d, row.shape[d]);
    if (!row.view.empty())
      std::memcpy(slot + field.offset + bytes, row.view.data(), row.view.size());
    bytes += row.view.size();
  }
  store(slot + field.offsets_offset, rows, static_cast<std::int64_t>(bytes / element));
  return {};
}

Status Packing::pad_rows(std::byte* slot, std::size_t tensor, std::uint64_t rows) const {
  const wire::FieldLayout& field = plan_->layout.fields()[tensor];
  const TensorSource& source = plan_->sources[tensor];
  const std::uint64_t element = wire::dtype_bytes(field.dtype);
  const std::size_t rank = field.ndim;
  Shape shape{};
  for (std::size_t d = 0; d < rank; ++d) {
    for (std::uint64_t i = 0; i < rows; ++i)
      shape[d] = std::max(shape[d], rows_[first_of_[tensor] + i].shape[d]);
    if (field.shape[d] < 0)
      shape[d] = (shape[d] + source.multiple_of - 1) / source.multiple_of * source.multiple_of;
  }
  const std::uint64_t row_bytes = times(elements(shape, rank), element);
  SPDLD_TRY(check(tensor, times(row_bytes, rows)));
  for (std::uint64_t i = 0; i < rows; ++i) {
    const PackedRow& row = rows_[first_of_[tensor] + i];
    store(slot + field.offsets_offset, i, static_cast<std::int64_t>(i * row_bytes / element));
    for (std::size_t d = 0; d < rank; ++d)
      store(slot + field.shapes_offset, i * rank + d, shape[d]);
    std::byte* const out = slot + field.offset + i * row_bytes;
    if (row.view.size() < row_bytes) fill(out, row_bytes, field.dtype, source.pad_value);
    copy_corner(row.view.data(), row.shape, out, shape, rank, element);
  }
  store(slot + field.offsets_offset, rows, static_cast<std::int64_t>(rows * row_bytes / element));
  return {};
}

void Packing::write_lengths(std::byte* slot, std::size_t tensor, std::uint64_t rows) const {
  const std::size_t padded = plan_->sources[tensor].index;
  const std::vector<std::int64_t>& shape = plan_->tensors[padded].shape;
  for (std::uint64_t i = 0; i < rows; ++i) {
    std::byte* const out = plan_->layout.row(slot, tensor, i);
    std::uint64_t written = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] < 0) store(out, written++, rows_[first_of_[padded] + i].shape[d]);
    }
  }
}

}  // namespace spdld::engine

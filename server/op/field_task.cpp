// SPDX-License-Identifier: Apache-2.0
#include "op/field_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "base/check.h"

namespace spdld {

Result<std::uint64_t> RowOutput::bytes_of(std::span<const std::int64_t> shape) const {
  // What no bound allows; it also keeps the product from overflowing.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  std::uint64_t bytes = wire::dtype_bytes(tensor_->dtype);
  for (const std::int64_t extent : shape) {
    SPDLD_CHECK(extent >= 0);
    const auto count = static_cast<std::uint64_t>(extent);
    if (count > kMost)
      return error(Code::kDataLoss, "its field '" + tensor_->name + "' has the impossible shape " +
                                        shape_text(shape));
    bytes = count != 0 && bytes > kMost / count ? kMost : bytes * count;
  }
  if (bytes > tensor_->max_row_bytes)
    return error(Code::kResourceExhausted,
                 "its field '" + tensor_->name + "' takes " + std::to_string(bytes) +
                     " bytes, and a row of it may take " + std::to_string(tensor_->max_row_bytes) +
                     ": raise " + tensor_->bound_name);
  return bytes;
}

Result<std::uint64_t> RowOutput::set_shape(std::span<const std::int64_t> shape) {
  SPDLD_CHECK(packed_ != nullptr && shape.size() <= packed_->shape.size());
  SPDLD_ASSIGN(const std::uint64_t bytes, bytes_of(shape));
  std::copy(shape.begin(), shape.end(), packed_->shape.begin());
  return bytes;
}

std::uint64_t RowOutput::resize_bytes(std::span<const std::int64_t> shape) const {
  if (packed_ == nullptr) return 0;
  const auto bytes = bytes_of(shape);
  return bytes ? ByteBuffer::grown(*bytes) : 0;  // resize() takes nothing then
}

Status RowOutput::check(std::span<const std::int64_t> shape) const {
  if (packed_ == nullptr) return {};
  auto bytes = bytes_of(shape);
  return bytes ? Status() : std::move(bytes).error();
}

Result<std::byte*> RowOutput::resize(std::span<const std::int64_t> shape) {
  if (packed_ == nullptr) {
    if (std::equal(shape.begin(), shape.end(), tensor_->shape.begin(), tensor_->shape.end()))
      return data_;
    return error(Code::kDataLoss,
                 "its field '" + tensor_->name + "' has the shape " + shape_text(shape) +
                     ", and a row of the stack " + shape_text(tensor_->shape) +
                     (tensor_->to_one_shape.empty()
                          ? ": write 'batch: {collate: {" + tensor_->name + ": ragged}}'"
                          : ", which the others have: " + tensor_->mend()));
  }
  SPDLD_ASSIGN(const std::uint64_t bytes, set_shape(shape));
  std::byte* const data = packed_->bytes.resize(bytes);
  packed_->view = {data, bytes};
  return data;
}

Status RowOutput::put_nothing() {
  if (packed_ != nullptr) {
    std::array<std::int64_t, wire::kMaxRank> shape{};
    std::copy(tensor_->shape.begin(), tensor_->shape.end(), shape.begin());
    const std::span<std::int64_t> extents(shape.data(), tensor_->shape.size());
    std::replace(extents.begin(), extents.end(), std::int64_t{-1}, std::int64_t{0});
    // Rows of bytes have one extent.
    const auto made = resize({shape.data(), std::max<std::size_t>(extents.size(), 1)});
    return made ? Status() : made.error();
  }
  std::memset(data_, 0, tensor_->row_bytes());
  return {};
}

Status RowOutput::refer(std::span<const std::byte> bytes, std::span<const std::int64_t> shape) {
  auto checked = set_shape(shape);
  if (!checked) return std::move(checked).error();
  SPDLD_CHECK(*checked == bytes.size());
  packed_->view = bytes;
  return {};
}

}  // namespace spdld

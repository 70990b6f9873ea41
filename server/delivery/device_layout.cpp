// SPDX-License-Identifier: Apache-2.0
#include "delivery/device_layout.h"

#include <cstring>

namespace spdld::delivery {
namespace {

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + wire::kFieldAlignment - 1) / wire::kFieldAlignment * wire::kFieldAlignment;
}

std::uint64_t row_bytes(const wire::FieldLayout& field) {
  std::uint64_t bytes = wire::dtype_bytes(field.dtype);
  for (std::uint32_t i = 0; i < field.ndim; ++i)
    bytes *= static_cast<std::uint64_t>(field.shape[i]);
  return bytes;
}

std::uint64_t used_bytes(const wire::FieldLayout& field, const std::byte* slot,
                         std::uint64_t rows) {
  if (field.kind == wire::FieldKind::kDense) return rows * row_bytes(field);
  std::int64_t elements = 0;
  std::memcpy(&elements, slot + field.offsets_offset + rows * sizeof elements, sizeof elements);
  return static_cast<std::uint64_t>(elements) * wire::dtype_bytes(field.dtype);
}

// Offsets and shapes of so many rows.
struct Tables {
  std::uint64_t offsets = 0;
  std::uint64_t shapes = 0;
};

Tables table_bytes(const wire::FieldLayout& field, std::uint64_t rows) {
  Tables tables;
  if (field.kind != wire::FieldKind::kDense) tables.offsets = (rows + 1) * sizeof(std::int64_t);
  if (field.kind == wire::FieldKind::kRagged)
    tables.shapes = rows * field.ndim * sizeof(std::int64_t);
  return tables;
}

}  // namespace

DeviceLayout::DeviceLayout(std::span<const wire::FieldLayout> fields, std::uint64_t rows)
    : whole_(fields.begin(), fields.end()), fields_(whole_) {
  for (wire::FieldLayout& field : fields_) {
    if (wire::goes_to_device(field)) {
      field.flags |= wire::kFieldOnDevice;
      field.offset = device_bytes_;
      device_bytes_ = aligned(device_bytes_ + field.capacity_bytes);
    } else {
      field.offset = host_bytes_;
      host_bytes_ = aligned(host_bytes_ + field.capacity_bytes);
    }
    const Tables tables = table_bytes(field, rows);
    if (tables.offsets > 0) {
      field.offsets_offset = host_bytes_;
      host_bytes_ = aligned(host_bytes_ + tables.offsets);
    }
    if (tables.shapes > 0) {
      field.shapes_offset = host_bytes_;
      host_bytes_ = aligned(host_bytes_ + tables.shapes);
    }
  }
  if (host_bytes_ == 0) host_bytes_ = wire::kFieldAlignment;
}

DeviceLayout::Parts DeviceLayout::parts(const std::byte* slot, std::uint64_t rows) const {
  Parts parts;
  const auto add = [](std::vector<Part>& to, std::uint64_t from, std::uint64_t into,
                      std::uint64_t bytes) {
    if (bytes > 0) to.push_back({.from = from, .to = into, .bytes = bytes});
  };
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const wire::FieldLayout& from = whole_[i];
    const wire::FieldLayout& to = fields_[i];
    const bool on_device = (to.flags & wire::kFieldOnDevice) != 0;
    add(on_device ? parts.device : parts.host, from.offset, to.offset,
        used_bytes(from, slot, rows));
    const Tables tables = table_bytes(from, rows);
    add(parts.host, from.offsets_offset, to.offsets_offset, tables.offsets);
    add(parts.host, from.shapes_offset, to.shapes_offset, tables.shapes);
  }
  return parts;
}

}  // namespace spdld::delivery

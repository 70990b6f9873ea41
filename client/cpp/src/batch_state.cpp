// SPDX-License-Identifier: Apache-2.0
#include "batch_state.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "spdld/error.h"
#include "text.h"

namespace spdld::client {
namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

// a * b, or kNone when that is too much.
std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? kNone : out;
}

bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t room) {
  return bytes != kNone && offset <= room && bytes <= room - offset;
}

std::uint64_t row_bytes(const wire::FieldLayout& field) {
  std::uint64_t bytes = wire::dtype_bytes(field.dtype);
  for (std::uint32_t i = 0; i < field.ndim; ++i) {
    bytes = product(bytes, static_cast<std::uint64_t>(field.shape[i]));
    if (bytes == kNone) return kNone;
  }
  return bytes;
}

std::string check_field(const wire::FieldLayout& field) {
  if (::strnlen(field.name, sizeof field.name) == sizeof field.name) return "its name has no end";
  if (field.name[0] == '\0') return "it has no name";
  if (wire::dtype_bytes(field.dtype) == 0) return "its dtype is not known to this client";
  if (field.ndim > static_cast<std::uint32_t>(wire::kMaxRank)) return "it has too many dimensions";
  if (field.kind != wire::FieldKind::kDense && field.kind != wire::FieldKind::kRagged &&
      field.kind != wire::FieldKind::kBytes) {
    return "its kind is not known to this client";
  }
  const bool on_device = (field.flags & wire::kFieldOnDevice) != 0;
  if (on_device && (field.kind == wire::FieldKind::kBytes || (field.flags & wire::kFieldMeta) != 0))
    return "such a field does not lie on a GPU";
  const std::uint64_t alignment = on_device ? wire::kFieldAlignment : 8;
  if (field.offset % alignment != 0 || field.offsets_offset % 8 != 0 ||
      field.shapes_offset % 8 != 0) {
    return "it is not aligned";
  }
  if (field.kind != wire::FieldKind::kDense) return "";
  for (std::uint32_t i = 0; i < field.ndim; ++i) {
    if (field.shape[i] < 0) return "its shape is negative";
  }
  return row_bytes(field) == kNone ? "it is too large" : "";
}

// Rows that were filled up to one shape lie as those of a dense field do, of a shape that each
// batch has for itself.
std::string unpad(TensorView& view, std::uint64_t rows) {
  const std::size_t rank = view.ndim - 1;
  std::uint64_t elements = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t extent = rows == 0 ? 0 : view.shapes[d];
    if (extent < 0) return "its shape is negative";
    view.dims[d + 1] = extent;
    elements = product(elements, static_cast<std::uint64_t>(extent));
  }
  for (std::uint64_t i = 0; i < rows; ++i) {
    if (!std::equal(view.shapes + i * rank, view.shapes + (i + 1) * rank, view.shapes) ||
        static_cast<std::uint64_t>(view.offsets[i + 1] - view.offsets[i]) != elements)
      return "its rows are not padded to one shape";
  }
  view.kind = wire::FieldKind::kDense;
  view.offsets = nullptr;
  view.shapes = nullptr;
  return "";
}

TensorView view_of(const wire::FieldLayout& field) {
  TensorView view;
  view.name = field.name;
  view.kind = field.kind;
  view.dtype = field.dtype;
  view.meta = (field.flags & wire::kFieldMeta) != 0;
  view.on_device = (field.flags & wire::kFieldOnDevice) != 0;
  view.text = field.kind == wire::FieldKind::kBytes && (field.flags & wire::kFieldText) != 0;
  view.ndim = field.kind == wire::FieldKind::kBytes ? 1 : field.ndim + 1;
  std::copy_n(field.shape, field.ndim, view.dims.begin() + 1);
  return view;
}

// Memory that a part of a batch has to lie in.
struct Room {
  const std::byte* base = nullptr;
  std::uint64_t bytes = 0;
};

// Where one field of a batch lies: its values in `room`, all else in its slot. Empty when it does.
// `view` is that of its schema. Offsets and shapes are copied to `layout`, once: the daemon can
// write to the slot, and what was checked must be what is used.
std::string place(TensorView& view, const wire::FieldLayout& field, const Room& room,
                  const Room& slot, std::uint64_t rows, Layout& layout) {
  view.dims[0] = static_cast<std::int64_t>(rows);
  const char* const beyond = view.on_device
                                 ? "it reaches beyond the batch's part of the GPU's memory"
                                 : "it reaches beyond its slot";
  if (field.offset > room.bytes) return beyond;
  view.data = room.base + field.offset;
  if (field.kind == wire::FieldKind::kDense) {
    view.bytes = product(row_bytes(field), rows);
    return fits(field.offset, view.bytes, room.bytes) ? "" : beyond;
  }
  if (!fits(field.offsets_offset, product(rows + 1, 8), slot.bytes)) {
    return "its offsets reach beyond its slot";
  }
  const auto copy = [&](std::uint64_t offset, std::uint64_t count) {
    auto& numbers = layout.emplace_back(count);
    if (count > 0) std::memcpy(numbers.data(), slot.base + offset, count * sizeof numbers[0]);
    return numbers.data();
  };
  view.offsets = copy(field.offsets_offset, rows + 1);
  if (view.offsets[0] != 0) return "its offsets do not begin at 0";
  for (std::uint64_t i = 0; i < rows; ++i) {
    if (view.offsets[i + 1] < view.offsets[i]) return "its offsets go backwards";
  }
  view.bytes =
      product(static_cast<std::uint64_t>(view.offsets[rows]), wire::dtype_bytes(field.dtype));
  if (!fits(field.offset, view.bytes, room.bytes)) return beyond;
  if (field.kind == wire::FieldKind::kRagged) {
    if (!fits(field.shapes_offset, product(product(rows, field.ndim), 8), slot.bytes)) {
      return "its shapes reach beyond its slot";
    }
    view.shapes = copy(field.shapes_offset, rows * field.ndim);
    if ((field.flags & wire::kFieldPadded) != 0) return unpad(view, rows);
  }
  return "";
}

// Values, offsets and shapes of a field, each rounded up so that the next one is aligned.
struct Extent {
  std::uint64_t values = 0;
  std::uint64_t offsets = 0;
  std::uint64_t shapes = 0;
  std::uint64_t total() const { return rounded(values) + offsets + shapes; }
  static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }
};

Extent extent_of(const TensorView& view, std::uint64_t rows) {
  Extent extent{.values = view.bytes, .offsets = 0, .shapes = 0};
  if (view.offsets != nullptr) extent.offsets = (rows + 1) * 8;
  if (view.shapes != nullptr) extent.shapes = rows * (view.ndim - 1) * 8;
  return extent;
}

// `device` is where the values of a field lie that is on one.
void copy_out(TensorView& view, const Extent& extent, DeviceBatch* device, std::byte* to) {
  if (extent.values > 0 && view.on_device) {
    device->read(view.data, extent.values, to);
  } else if (extent.values > 0) {
    std::memcpy(to, view.data, extent.values);
  }
  view.data = to;
  view.on_device = false;
  to += Extent::rounded(extent.values);
  if (view.offsets != nullptr) {
    std::memcpy(to, view.offsets, extent.offsets);
    view.offsets = reinterpret_cast<const std::int64_t*>(to);
    to += extent.offsets;
  }
  if (view.shapes != nullptr) {
    if (extent.shapes > 0) std::memcpy(to, view.shapes, extent.shapes);
    view.shapes = reinterpret_cast<const std::int64_t*>(to);
  }
  view.copied = true;
}

// Copies the fields that `is_copied` names into memory of the state's own.
template <typename F>
void copy_out(BatchState& state, F&& is_copied) {
  std::uint64_t copied_bytes = 0;
  for (std::size_t i = 0; i < state.fields.size(); ++i) {
    if (is_copied(i)) copied_bytes += extent_of(state.fields[i], state.rows).total();
  }
  auto words = std::make_shared_for_overwrite<std::uint64_t[]>((copied_bytes + 7) / 8);
  auto* to = reinterpret_cast<std::byte*>(words.get());
  std::shared_ptr<std::byte[]> copies(std::move(words), to);
  for (std::size_t i = 0; i < state.fields.size(); ++i) {
    TensorView& view = state.fields[i];
    if (is_copied(i)) {
      const Extent extent = extent_of(view, state.rows);
      copy_out(view, extent, state.device.get(), to);
      to += extent.total();
    }
    if (!view.meta || view.ndim != 1) continue;
    if (view.name == wire::kIndexField && view.dtype == DType::kInt64) {
      state.indices = {reinterpret_cast<const std::int64_t*>(view.data), state.rows};
    } else if (view.name == wire::kValidField && view.dtype == DType::kBool) {
      state.valid = {reinterpret_cast<const std::uint8_t*>(view.data), state.rows};
    }
  }
  state.copies = std::move(copies);  // what was there is still read above
}

}  // namespace

Lease::Lease(std::shared_ptr<Channel> channel, std::shared_ptr<Mapping> mapping,
             const wire::BatchFrame& frame)
    : channel_(std::move(channel)),
      mapping_(std::move(mapping)),
      id_(frame.lease),
      offset_(frame.slot_offset),
      bytes_(frame.slot_bytes) {
  channel_->hold({.lease = id_, .epoch = frame.epoch, .step = frame.step});
}

void Lease::end() {
  if (ended_.exchange(true, std::memory_order_acq_rel) || !channel_->in_owner()) return;
  if (has_private_view_.load(std::memory_order_relaxed)) mapping_->restore(offset_, bytes_);
  channel_->end(id_);
}

void Lease::forget() {
  if (ended_.exchange(true, std::memory_order_acq_rel) || !channel_->in_owner()) return;
  channel_->forget(id_);
}

std::byte* Lease::private_slot() {
  std::byte* base = mapping_->private_base();
  has_private_view_.store(true, std::memory_order_relaxed);  // end() comes after, by shared_ptr
  return base + offset_;
}

std::shared_ptr<const Schema> read_schema(std::span<const std::byte> frame,
                                          const std::string& order_digest, std::string& why) {
  wire::SchemaFrame fixed;
  if (frame.size() < sizeof fixed) {
    why = "a schema ends early";
    return nullptr;
  }
  std::memcpy(&fixed, frame.data(), sizeof fixed);
  const std::size_t rest = frame.size() - sizeof fixed;
  if (fixed.field_count > rest / sizeof(wire::FieldLayout)) {
    why = join("a schema of ", fixed.field_count, " fields ends early");
    return nullptr;
  }
  auto schema = std::make_shared<Schema>();
  schema->id = fixed.schema_id;
  schema->pipeline_version = fixed.pipeline_version;
  schema->order_digest = order_digest;
  schema->fields.resize(fixed.field_count);
  if (fixed.field_count > 0) {
    std::memcpy(schema->fields.data(), frame.data() + sizeof fixed,
                fixed.field_count * sizeof(wire::FieldLayout));
  }
  for (const wire::FieldLayout& field : schema->fields) {
    const std::string wrong = check_field(field);
    if (wrong.empty()) {
      schema->views.push_back(view_of(field));
      continue;
    }
    const std::string_view name(field.name, ::strnlen(field.name, sizeof field.name));
    why = join("field '", name, "' of a schema: ", wrong);
    return nullptr;
  }
  return schema;
}

std::shared_ptr<BatchState> make_batch(std::shared_ptr<Lease> lease,
                                       std::shared_ptr<const Schema> schema,
                                       const wire::BatchFrame& frame, const Delivery& delivery) {
  auto state = std::make_shared<BatchState>();
  state->epoch = frame.epoch;
  state->step = frame.step;
  state->rows = frame.rows;
  state->fields = schema->views;
  Layout layout;
  const Room slot{lease->slot(), frame.slot_bytes};
  const Room on_device{delivery.on_device, delivery.device_bytes};
  for (std::size_t i = 0; i < state->fields.size(); ++i) {
    TensorView& view = state->fields[i];
    const wire::FieldLayout& field = schema->fields[i];
    const Room& room = (field.flags & wire::kFieldOnDevice) != 0 ? on_device : slot;
    const std::string wrong = room.base == nullptr
                                  ? "it lies on a GPU, and the batch does not"
                                  : place(view, field, room, slot, frame.rows, layout);
    if (!wrong.empty()) {
      throw ConnectionError(kDataLoss, join("field '", view.name, "' of step ", frame.step,
                                            " of epoch ", frame.epoch, ": ", wrong));
    }
  }
  state->schema = std::move(schema);
  // Its numbers stay where the fields point to.
  if (!layout.empty()) state->layout = std::make_shared<const Layout>(std::move(layout));
  copy_out(*state, [&](std::size_t i) {
    const TensorView& view = state->fields[i];
    const bool goes = delivery.is_copied && wire::goes_to_device(state->schema->fields[i]);
    return !view.on_device && !goes && extent_of(view, state->rows).total() <= kCopyBytes;
  });
  state->lease = std::move(lease);
  return state;
}

void hand_out(BatchState& state) {
  const auto in_slot = [](const TensorView& field) { return !field.copied && !field.on_device; };
  if (std::none_of(state.fields.begin(), state.fields.end(), in_slot)) state.lease = nullptr;
}

void share_lease(BatchState& state) {
  state.lease = std::shared_ptr<Lease>(state.lease.get(), [kept = state.lease](Lease*) {});
}

void leave_unread(BatchState& state) { state.lease->forget(); }

std::shared_ptr<BatchState> copy_of(const BatchState& state) {
  auto copy = std::make_shared<BatchState>(state);
  copy_out(*copy, [](std::size_t) { return true; });
  copy->lease.reset();
  copy->device.reset();
  return copy;
}

}  // namespace spdld::client

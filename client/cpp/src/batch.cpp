// SPDX-License-Identifier: Apache-2.0
#include "spdld/batch.h"

#include <algorithm>
#include <utility>

#include "batch_state.h"
#include "text.h"

namespace spdld {
Batch::Batch(std::shared_ptr<client::BatchState> state) : state_(std::move(state)) {}

std::uint64_t Batch::epoch() const { return state_->epoch; }
std::uint64_t Batch::step() const { return state_->step; }
std::uint64_t Batch::rows() const { return state_->rows; }
std::uint32_t Batch::pipeline_version() const { return state_->schema->pipeline_version; }
const std::string& Batch::order_digest() const { return state_->schema->order_digest; }
const Cursor& Batch::state() const { return state_->behind; }
std::span<const std::int64_t> Batch::indices() const { return state_->indices; }
std::span<const std::uint8_t> Batch::valid() const { return state_->valid; }
std::span<const TensorView> Batch::fields() const { return state_->fields; }

const TensorView* Batch::find(std::string_view name) const {
  for (const TensorView& field : state_->fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

const TensorView& Batch::operator[](std::string_view name) const {
  if (const TensorView* field = find(name)) return *field;
  std::string names;
  for (const TensorView& field : state_->fields) {
    names += names.empty() ? "" : ", ";
    names += field.name;
  }
  throw PipelineError(client::kNotFound,
                      client::join("the batch has no field '", name, "'; it has ", names));
}

std::string_view Batch::text(std::string_view name, std::uint64_t row) const {
  const TensorView& field = (*this)[name];
  if (field.kind != FieldKind::kBytes) {
    throw PipelineError(client::kInvalidArgument,
                        client::join("field '", name, "' holds numbers, not texts"));
  }
  if (row >= state_->rows) {
    throw PipelineError(client::kInvalidArgument,
                        client::join("row ", row, " of a batch of ", state_->rows,
                                     state_->rows == 1 ? " row" : " rows"));
  }
  if (field.data == nullptr) {
    throw LeaseError(client::kFailedPrecondition, "the batch was released");
  }
  const auto first = static_cast<std::size_t>(field.offsets[row]);
  const auto end = static_cast<std::size_t>(field.offsets[row + 1]);
  return {reinterpret_cast<const char*>(field.data) + first, end - first};
}

std::int32_t Batch::device() const { return state_->device ? state_->device->ordinal() : -1; }

bool Batch::read_only() const { return state_->device && state_->device->is_read_only(); }

void Batch::make_ready(std::uintptr_t stream) const {
  if (state_->device) state_->device->make_ready(stream);
}

void Batch::record_stream(std::uintptr_t stream) const {
  if (state_->device) state_->device->record_stream(stream);
}

std::shared_ptr<const void> Batch::owner(const TensorView& field) const {
  if (field.copied) return state_->copies;
  std::shared_ptr<const void> values = state_->lease;
  if (field.on_device) values = state_->device;
  if (field.offsets == nullptr) return values;
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const client::Layout>>;
  return std::make_shared<Both>(std::move(values), state_->layout);
}

std::byte* Batch::private_data(const TensorView& field) const {
  if (field.copied) return state_->copies.get() + (field.data - state_->copies.get());
  if (released()) throw LeaseError(client::kFailedPrecondition, "the batch was released");
  if (field.on_device) {
    throw LeaseError(client::kFailedPrecondition,
                     client::join("the batch lies on cuda:", device(),
                                  " and has no private view: copy its tensors there, or leave "
                                  "device= out"));
  }
  return state_->lease->private_slot() + (field.data - state_->lease->slot());
}

Batch Batch::copy() const {
  const auto is_gone = [](const TensorView& field) { return !field.copied; };
  if (released() && std::any_of(state_->fields.begin(), state_->fields.end(), is_gone)) {
    throw LeaseError(client::kFailedPrecondition, "the batch was released");
  }
  return Batch(client::copy_of(*state_));
}

void Batch::release() {
  if (released()) return;
  if (state_.use_count() > 1 || state_->lease.use_count() > 1 || state_->device.use_count() > 1) {
    throw LeaseError(client::kFailedPrecondition,
                     client::join("step ", state_->step, " of epoch ", state_->epoch,
                                  " is still in use; let go of its copies and views first"));
  }
  if (state_->device) {
    state_->lease.reset();  // a copy from the slot may be under way, and ends it then
    state_->device.reset();
  } else {
    state_->lease->end();
  }
  for (TensorView& field : state_->fields) {
    if (field.copied) continue;
    field.data = nullptr;
    field.bytes = 0;
    field.offsets = field.shapes = nullptr;
  }
}

bool Batch::released() const {
  return !state_->device && (!state_->lease || state_->lease->ended());
}

}  // namespace spdld

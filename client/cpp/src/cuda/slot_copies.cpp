// SPDX-License-Identifier: Apache-2.0
#include "cuda/slot_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda/handed_batch.h"
#include "cuda/pinned_slots.h"

namespace spdld::client::cuda {
namespace {

// Where a field's values begin in device memory: what kernels that load vectors ask for.
constexpr std::uint64_t kAlignment = 256;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where the fields of a batch that go to the device come to lie there.
struct Placed {
  struct Field {
    std::size_t index;     // of the batch's
    std::uint64_t offset;  // from where the batch begins there
  };
  std::vector<Field> fields;
  std::uint64_t bytes = 0;
};

Placed place(const BatchState& batch) {
  Placed placed;
  for (std::size_t i = 0; i < batch.fields.size(); ++i) {
    if (!wire::goes_to_device(batch.schema->fields[i])) continue;
    placed.fields.push_back({.index = i, .offset = placed.bytes});
    placed.bytes += aligned(batch.fields[i].bytes);
  }
  return placed;
}

// A batch that was copied, or is being copied, to a buffer.
class BufferedBatch final : public HandedBatch {
 public:
  BufferedBatch(std::shared_ptr<Device> device, std::shared_ptr<DeviceBuffers> buffers,
                DeviceBuffers::Buffer buffer)
      : HandedBatch(std::move(device)), buffers_(std::move(buffers)), buffer_(std::move(buffer)) {}
  ~BufferedBatch() override {
    if (device().in_owner()) buffers_->give_back(std::move(buffer_), take_readers());
  }
  bool is_read_only() const override { return false; }

  CUdeviceptr address() const { return buffer_.address; }
  // It is complete when this has passed. Before the batch is shared.
  void set_complete(EventPtr complete) { complete_ = std::move(complete); }

 private:
  void await_values(CUstream stream) const override {
    device().check(device().functions().StreamWaitEvent(stream, complete_->get(), 0),
                   "waiting for a batch");
  }

  const std::shared_ptr<DeviceBuffers> buffers_;
  DeviceBuffers::Buffer buffer_;
  EventPtr complete_;
};

}  // namespace

SlotCopies::SlotCopies(std::shared_ptr<Device> device)
    : device_(std::move(device)), buffers_(std::make_shared<DeviceBuffers>(device_)) {
  const Current current(*device_);
  device_->check(device_->functions().StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
                 "making a stream");
}

SlotCopies::~SlotCopies() {
  if (!device_->in_owner()) return;
  if (const Current current(*device_); current) {
    finish();
    device_->functions().StreamDestroy(stream_);
    if (staging_ != nullptr) device_->functions().MemFreeHost(staging_);
  }
}

void SlotCopies::begin(BatchState& batch) {
  const Placed placed = place(batch);
  if (placed.fields.empty()) return;
  const Current current(*device_);
  const std::uint64_t total = std::max<std::uint64_t>(placed.bytes, 1);
  auto on_device =
      std::make_shared<BufferedBatch>(device_, buffers_, buffers_->take(total, stream_));
  const bool pinned = pin(*batch.lease);
  const auto address = [&](const Placed::Field& field) {
    return on_device->address() + field.offset;
  };
  try {
    if (!pinned) make_staging(total);
    for (const Placed::Field& field : placed.fields) {
      const TensorView& view = batch.fields[field.index];
      if (view.bytes == 0) continue;
      const std::byte* const from = pinned ? view.data : stage(view, field.offset);
      device_->check(
          device_->functions().MemcpyHtoDAsync(address(field), from, view.bytes, stream_),
          "copying a batch");
    }
    EventPtr over = device_->event();
    device_->check(device_->functions().EventRecord(over->get(), stream_), "recording an event");
    on_device->set_complete(over);
    under_way_.push_back({.over = std::move(over), .lease = pinned ? batch.lease : nullptr});
  } catch (...) {
    // Nobody else knows of what was begun.
    device_->functions().StreamSynchronize(stream_);
    throw;
  }
  if (!pinned) ++staged_;
  for (const Placed::Field& field : placed.fields) {
    batch.fields[field.index].data = reinterpret_cast<const std::byte*>(address(field));
    batch.fields[field.index].on_device = true;
  }
  batch.device = std::move(on_device);
  share_lease(batch);
}

bool SlotCopies::has_room(const BatchState& batch, std::uint32_t most) const {
  return buffers_->taken() < most || place(batch).fields.empty();
}

bool SlotCopies::pin(Lease& lease) {
  if (!staged_why_.empty()) return false;
  Mapping& mapping = lease.mapping();
  if (!mapping.contains_slot(lease.slot())) {
    staged_why_ = "the daemon's slots are not as its arena says";
    return false;
  }
  if (mapping.use() == nullptr) mapping.set_use(std::make_unique<PinnedSlots>(device_));
  auto& slots = static_cast<PinnedSlots&>(*mapping.use());
  return slots.pin(lease.slot(), mapping.slot_stride(), staged_why_);
}

void SlotCopies::make_staging(std::uint64_t bytes) {
  // Copies that are under way still read this memory.
  device_->check(device_->functions().StreamSynchronize(stream_), "waiting for a copy");
  if (staging_bytes_ >= bytes) return;
  if (staging_ != nullptr) device_->functions().MemFreeHost(staging_);
  staging_ = nullptr;
  staging_bytes_ = 0;
  void* memory = nullptr;
  device_->check(device_->functions().MemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE),
                 "taking pinned memory for a batch");
  staging_ = static_cast<std::byte*>(memory);
  staging_bytes_ = bytes;
}

const std::byte* SlotCopies::stage(const TensorView& field, std::uint64_t offset) {
  std::memcpy(staging_ + offset, field.data, field.bytes);
  return staging_ + offset;
}

void SlotCopies::reap() {
  if (under_way_.empty()) return;
  const Current current(*device_);
  while (!under_way_.empty()) {
    const CUresult result = device_->functions().EventQuery(under_way_.front().over->get());
    if (result == CUDA_ERROR_NOT_READY) return;
    device_->check(result, "copying batches");
    under_way_.pop_front();
  }
}

void SlotCopies::finish() {
  if (under_way_.empty()) return;
  const Current current(*device_);
  device_->functions().StreamSynchronize(stream_);
  under_way_.clear();
}

bool SlotCopies::await_one() {
  if (under_way_.empty()) return false;
  const Current current(*device_);
  device_->check(device_->functions().EventSynchronize(under_way_.front().over->get()),
                 "copying batches");
  under_way_.pop_front();
  return true;
}

}  // namespace spdld::client::cuda

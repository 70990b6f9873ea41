// SPDX-License-Identifier: Apache-2.0
#include "cuda/slot_copies.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda/pinned_slots.h"
#include "spdld/error.h"
#include "text.h"

namespace spdld::client::cuda {
namespace {

// Where a field's values begin in device memory: what kernels that load vectors ask for.
constexpr std::uint64_t kAlignment = 256;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool goes_to_device(const TensorView& field) {
  return !field.copied && field.kind != FieldKind::kBytes;
}

std::uint64_t device_bytes(const BatchState& batch) {
  std::uint64_t total = 0;
  for (const TensorView& field : batch.fields) {
    if (goes_to_device(field)) total += aligned(field.bytes);
  }
  return total;
}

// A batch that was copied, or is being copied, to a buffer.
class BufferedBatch final : public DeviceBatch {
 public:
  BufferedBatch(std::shared_ptr<Device> device, std::shared_ptr<DeviceBuffers> buffers,
                DeviceBuffers::Buffer buffer)
      : device_(std::move(device)), buffers_(std::move(buffers)), buffer_(std::move(buffer)) {}
  ~BufferedBatch() override {
    if (!device_->in_owner()) return;
    std::vector<CUstream> readers;
    for (const Reader& reader : readers_) readers.push_back(seen_from_here(reader));
    buffers_->give_back(std::move(buffer_), readers);
  }

  CUdeviceptr address() const { return buffer_.address; }
  // It is complete when this has passed. Before the batch is shared.
  void set_complete(EventPtr complete) { complete_ = std::move(complete); }

  int ordinal() const override { return device_->ordinal(); }
  void make_ready(std::uintptr_t stream) override {
    const Current current(*device_);
    CUstream const reader = usable(stream);
    device_->check(device_->functions().StreamWaitEvent(reader, complete_->get(), 0),
                   "waiting for a batch");
    note(reader);
  }
  void record_stream(std::uintptr_t stream) override {
    const Current current(*device_);
    note(usable(stream));
  }

 private:
  CUstream usable(std::uintptr_t stream) const {
    auto* const reader = reinterpret_cast<CUstream>(stream);
    if (device_->is_capturing(reader))
      throw LeaseError(kFailedPrecondition,
                       "a batch cannot be handed to a stream that is being captured into a graph: "
                       "its memory is another one at each step. Copy it to a tensor of your own "
                       "before, and capture what reads that one");
    return reader;
  }
  struct Reader {
    CUstream stream;
    std::thread::id thread;  // that handed the batch to it
  };

  void note(CUstream stream) {
    const Reader reader{stream, std::this_thread::get_id()};
    const std::lock_guard lock(mutex_);
    const bool is_own = stream == CU_STREAM_PER_THREAD;
    const auto is_same = [&](const Reader& known) {
      return known.stream == stream && (!is_own || known.thread == reader.thread);
    };
    if (std::none_of(readers_.begin(), readers_.end(), is_same)) readers_.push_back(reader);
  }
  // One thread cannot name another one's default stream. The legacy one waits for it.
  static CUstream seen_from_here(const Reader& reader) {
    const bool is_others =
        reader.stream == CU_STREAM_PER_THREAD && reader.thread != std::this_thread::get_id();
    return is_others ? CU_STREAM_LEGACY : reader.stream;
  }

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<DeviceBuffers> buffers_;
  DeviceBuffers::Buffer buffer_;
  EventPtr complete_;
  std::mutex mutex_;
  std::vector<Reader> readers_;  // guarded by mutex_
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
  const std::uint64_t total = device_bytes(batch);
  if (total == 0) return;
  const Current current(*device_);
  auto on_device =
      std::make_shared<BufferedBatch>(device_, buffers_, buffers_->take(total, stream_));
  const bool pinned = pin(*batch.lease);
  try {
    EventPtr over = copy(batch, on_device->address(), total, pinned);
    on_device->set_complete(over);
    under_way_.push_back({.over = std::move(over), .lease = pinned ? batch.lease : nullptr});
  } catch (...) {
    // Nobody else knows of what was begun.
    device_->functions().StreamSynchronize(stream_);
    throw;
  }
  if (!pinned) ++staged_;
  std::uint64_t offset = 0;
  for (TensorView& field : batch.fields) {
    if (!goes_to_device(field)) continue;
    field.data = reinterpret_cast<const std::byte*>(on_device->address() + offset);
    field.on_device = true;
    offset += aligned(field.bytes);
  }
  batch.device = std::move(on_device);
  // The copy keeps the lease, too, and is no user that forbids Batch::release().
  batch.lease = std::shared_ptr<Lease>(batch.lease.get(), [kept = batch.lease](Lease*) {});
}

bool SlotCopies::has_room(const BatchState& batch, std::uint32_t most) const {
  return buffers_->taken() < most || device_bytes(batch) == 0;
}

// The event passes when the values have been copied there.
EventPtr SlotCopies::copy(const BatchState& batch, CUdeviceptr to, std::uint64_t total,
                          bool pinned) {
  std::uint64_t offset = 0;
  for (const TensorView& field : batch.fields) {
    if (!goes_to_device(field)) continue;
    const std::byte* const from = pinned ? field.data : stage(field, offset, total);
    if (field.bytes > 0)
      device_->check(device_->functions().MemcpyHtoDAsync(to + offset, from, field.bytes, stream_),
                     "copying a batch");
    offset += aligned(field.bytes);
  }
  EventPtr over = device_->event();
  device_->check(device_->functions().EventRecord(over->get(), stream_), "recording an event");
  return over;
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

const std::byte* SlotCopies::stage(const TensorView& field, std::uint64_t offset,
                                   std::uint64_t total) {
  // Copies that are under way still read this memory.
  if (offset == 0)
    device_->check(device_->functions().StreamSynchronize(stream_), "waiting for a copy");
  if (staging_bytes_ < total) {
    if (staging_ != nullptr) device_->functions().MemFreeHost(staging_);
    staging_ = nullptr;
    staging_bytes_ = 0;
    void* memory = nullptr;
    device_->check(device_->functions().MemHostAlloc(&memory, total, CU_MEMHOSTALLOC_PORTABLE),
                   "taking pinned memory for a batch");
    staging_ = static_cast<std::byte*>(memory);
    staging_bytes_ = total;
  }
  if (field.bytes > 0) std::memcpy(staging_ + offset, field.data, field.bytes);
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

namespace spdld::client {

std::unique_ptr<DeviceCopies> DeviceCopies::open(const std::string& device) {
  return std::make_unique<cuda::SlotCopies>(cuda::Device::open(device_ordinal(device)));
}

}  // namespace spdld::client

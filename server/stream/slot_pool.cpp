// SPDX-License-Identifier: Apache-2.0
#include "stream/slot_pool.h"

#include <algorithm>
#include <utility>

#include "delivery/memory_probe.h"

namespace spdld::stream {

void ByteMeter::set_limit(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  limit_ = bytes;
}

std::uint64_t ByteMeter::used() const {
  MutexLock lock(mutex_);
  return used_;
}

Status ByteMeter::reserve(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  if (limit_ > 0 && bytes + used_ > limit_)
    return Status(Code::kResourceExhausted,
                  "an arena of " + delivery::format_bytes(bytes) + " does not fit: the job has " +
                      delivery::format_bytes(used_) + " of the " + delivery::format_bytes(limit_) +
                      " that it may take; raise its limit with 'spdlctl tune JOB memory=SIZE', or "
                      "lower batch.size or prefetch");
  used_ += bytes;
  return {};
}

void ByteMeter::release(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  used_ -= bytes;
}

Result<std::shared_ptr<SlotPool>> SlotPool::create(const delivery::ArenaShape& shape, uid_t uid,
                                                   delivery::ArenaPool& home,
                                                   std::shared_ptr<ByteMeter> meter,
                                                   engine::Executor& executor) {
  const std::uint64_t bytes = delivery::arena_bytes(shape);
  SPDLD_TRY(meter->reserve(bytes));
  auto arena = home.take(shape, uid);
  if (!arena) {
    meter->release(bytes);
    return tl::unexpected<Status>(std::move(arena).error());
  }
  return std::shared_ptr<SlotPool>(
      new SlotPool(std::move(*arena), uid, home, std::move(meter), executor));
}

Result<std::shared_ptr<SlotPool>> SlotPool::another(std::shared_ptr<ByteMeter> meter) const {
  if (meter == nullptr) meter = meter_;
  return create(arena_->shape(), uid_, home_, std::move(meter), executor_);
}

SlotPool::SlotPool(std::unique_ptr<delivery::Arena> arena, uid_t uid, delivery::ArenaPool& home,
                   std::shared_ptr<ByteMeter> meter, engine::Executor& executor)
    : arena_(std::move(arena)),
      slots_(arena_->shape().slot_count),
      uid_(uid),
      home_(home),
      meter_(std::move(meter)),
      executor_(executor) {}

Result<std::shared_ptr<SlotPool>> SlotPool::on(const delivery::DeviceMemoryPtr& gpu,
                                               const delivery::DeviceLayout& layout,
                                               std::uint32_t slot_count, DeviceReserve* reserve) {
  const std::uint64_t stride = layout.device_bytes();
  std::erase_if(on_gpus_, [](const auto& known) { return known.expired(); });
  for (const auto& known : on_gpus_) {
    // After a seek the slots may be another plan's that divides them otherwise.
    if (auto pool = known.lock(); pool != nullptr && pool->gpu_ == gpu &&
                                  pool->device_stride_ == stride && pool->memory_failure().ok() &&
                                  pool->arena_->shape().slot_bytes == layout.host_bytes())
      return pool;
  }
  std::shared_ptr<delivery::DeviceArena> device_arena;
  if (reserve != nullptr) {
    SPDLD_ASSIGN(device_arena, reserve->take(gpu, stride * slot_count));
  }
  const delivery::ArenaShape shape{
      .kind = arena_->shape().kind, .slot_bytes = layout.host_bytes(), .slot_count = slot_count};
  SPDLD_ASSIGN(auto pool, create(shape, uid_, home_, meter_, executor_));
  pool->gpu_ = gpu;
  pool->device_stride_ = stride;
  pool->pinned_ = &pin(gpu);
  pool->filled_from_ = weak_from_this();
  on_gpus_.push_back(pool);
  if (device_arena != nullptr) {
    pool->device_arena_ = std::move(device_arena);
    pool->memory_ = Memory::kThere;
  } else {
    pool->await_memory(stride * slot_count);
  }
  return pool;
}

void SlotPool::await_memory(std::uint64_t bytes) {
  // Where nobody has the pool any more by then, its memory goes as it came.
  gpu_->post([gpu = std::weak_ptr(gpu_), pool = weak_from_this(), bytes] {
    const auto lent = gpu.lock();
    if (lent == nullptr || pool.expired()) return;
    auto memory = lent->allocate(bytes);
    if (const auto waits = pool.lock()) waits->memory_came(std::move(memory));
  });
}

void SlotPool::memory_came(Result<std::unique_ptr<delivery::DeviceArena>> memory) {
  if (memory) {
    device_arena_ = std::move(*memory);
    memory_ = Memory::kThere;
  } else {
    refusal_ = std::move(memory).error();
    memory_ = Memory::kRefused;
  }
  std::weak_ptr<DeviceSlotWaiter> waiter;
  {
    MutexLock lock(pins_mutex_);
    waiter = waiter_;
  }
  if (const auto waits = waiter.lock()) waits->device_slot_freed();
}

Status SlotPool::memory_failure() const {
  return memory_.load() == Memory::kRefused ? refusal_ : Status();
}

// The driver may take any time to release memory, so that the GPU's own thread waits for it.
SlotPool::~SlotPool() {
  meter_->release(arena_->total_bytes());
  // A slot that is not free would be one that a live process may read: then the arena dies here,
  // and its memory with the last mapping.
  const auto let_go = [&home = home_, uid = uid_,
                       idle = slots_.idle()](std::unique_ptr<delivery::Arena> arena) {
    if (idle) {
      home.give_back(std::move(arena), uid);
    } else {
      home.bury(std::move(arena));
    }
  };
  if (gpu_ != nullptr) {
    gpu_->post([memory = std::move(device_arena_)]() mutable { memory.reset(); });
    if (const auto source = filled_from_.lock()) source->unpin(gpu_);
  }
  if (pins_.empty()) {
    let_go(std::move(arena_));
    return;
  }
  // The last of the GPUs that read it; each has its own registrations.
  const auto arena = std::make_shared<std::unique_ptr<delivery::Arena>>(std::move(arena_));
  const std::shared_ptr<void> last(nullptr, [arena, let_go](void*) { let_go(std::move(*arena)); });
  for (Pin& pin : pins_)
    pin.gpu->post([last = last, slots = std::shared_ptr(std::move(pin.slots))]() mutable {
      slots.reset();
      last.reset();
    });
}

delivery::PinnedArena& SlotPool::pin(const delivery::DeviceMemoryPtr& gpu) {
  MutexLock lock(pins_mutex_);
  auto pin =
      std::find_if(pins_.begin(), pins_.end(), [&](const Pin& known) { return known.gpu == gpu; });
  if (pin == pins_.end())
    pin = pins_.insert(pin, {.gpu = gpu, .slots = gpu->pin(*arena_), .pools = 0});
  ++pin->pools;
  return *pin->slots;
}

// Copies hold the pool that they go to, so that none of its is under way.
void SlotPool::unpin(const delivery::DeviceMemoryPtr& gpu) {
  std::shared_ptr<delivery::PinnedArena> slots;
  {
    MutexLock lock(pins_mutex_);
    const auto pin = std::find_if(pins_.begin(), pins_.end(),
                                  [&](const Pin& known) { return known.gpu == gpu; });
    if (--pin->pools > 0) return;
    slots = std::move(pin->slots);
    pins_.erase(pin);
  }
  gpu->post([self = shared_from_this(), slots = std::move(slots)]() mutable {
    slots.reset();
    self.reset();  // its arena goes no earlier
  });
}

void SlotPool::serve(std::weak_ptr<DeviceSlotWaiter> waiter) {
  {
    MutexLock lock(pins_mutex_);
    waiter_ = std::move(waiter);
  }
  if (!memory_failure().ok()) freed();  // nobody has been told so yet
}

void SlotPool::serve(engine::StreamId stream) {
  MutexLock lock(served_mutex_);
  served_.push_back(stream);
}

void SlotPool::serve_no_more(engine::StreamId stream) {
  MutexLock lock(served_mutex_);
  std::erase(served_, stream);
}

std::size_t SlotPool::streams() const {
  MutexLock lock(served_mutex_);
  return served_.size();
}

void SlotPool::commit(std::uint32_t slot, std::uint32_t readers) {
  slots_.commit(slot, readers);
  if (readers == 0) freed();
}

void SlotPool::abort(std::uint32_t slot) {
  slots_.abort(slot);
  freed();
}

void SlotPool::forgo(std::uint32_t slot) {
  if (slots_.forgo(slot)) freed();
}

void SlotPool::discard(std::uint32_t slot) {
  if (slots_.discard(slot)) freed();
}

void SlotPool::reclaim(delivery::HolderId holder) {
  if (slots_.reclaim(holder) > 0) freed();
}

bool SlotPool::release(std::uint64_t lease, delivery::HolderId holder) {
  const auto released = slots_.release(lease, holder);
  return released && *released;
}

void SlotPool::freed() const {
  if (gpu_ != nullptr) {
    std::weak_ptr<DeviceSlotWaiter> waiter;
    {
      MutexLock lock(pins_mutex_);
      waiter = waiter_;
    }
    // On the GPU's thread, as the caller may hold the lock of the waiting stream.
    gpu_->post([waiter] {
      if (const auto waits = waiter.lock()) waits->device_slot_freed();
    });
    return;
  }
  std::vector<engine::StreamId> served;
  {
    MutexLock lock(served_mutex_);
    served = served_;
  }
  for (const engine::StreamId stream : served) executor_.wake(stream);
}

}  // namespace spdld::stream

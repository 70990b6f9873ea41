// SPDX-License-Identifier: Apache-2.0
#include "session/slot_pool.h"

#include <utility>

#include "delivery/memory_probe.h"

namespace spdld::session {

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
                      " that it may take; raise its limit with 'spdlctl job limit --memory', or "
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

SlotPool::SlotPool(std::unique_ptr<delivery::Arena> arena, uid_t uid, delivery::ArenaPool& home,
                   std::shared_ptr<ByteMeter> meter, engine::Executor& executor)
    : arena_(std::move(arena)),
      slots_(arena_->shape().slot_count),
      uid_(uid),
      home_(home),
      meter_(std::move(meter)),
      executor_(executor) {}

SlotPool::~SlotPool() {
  meter_->release(arena_->total_bytes());
  // A slot that is not free would be one that a live process may read: then the arena dies here,
  // and its memory with the last mapping.
  if (slots_.idle()) {
    home_.give_back(std::move(arena_), uid_);
  } else {
    home_.bury(std::move(arena_));
  }
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
  const engine::StreamId stream = stream_.load(std::memory_order_acquire);
  if (stream != 0) executor_.wake(stream);
}

}  // namespace spdld::session

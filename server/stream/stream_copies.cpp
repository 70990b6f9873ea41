// SPDX-License-Identifier: Apache-2.0
// What a stream's readers on GPUs read: copies of what lies in main memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "stream/stream.h"

namespace spdld::stream {
namespace {

// Holds the slot in main memory while it is copied to these slots: no consumer has such an id.
delivery::HolderId copier_for(const SlotPool& on_gpu) {
  return ~delivery::HolderId{on_gpu.arena().id()};
}

}  // namespace

bool Stream::is_there(const Ready& ready, const std::shared_ptr<SlotPool>& on_gpu) {
  const auto is_it = [&](const Copied& copy) { return copy.pool == on_gpu && copy.there; };
  return on_gpu == nullptr ? ready.expected > 0
                           : std::any_of(ready.copies.begin(), ready.copies.end(), is_it);
}

bool Stream::reaches(const Ready& ready, const std::shared_ptr<SlotPool>& on_gpu) {
  return ready.expected > 0 || is_there(ready, on_gpu);
}

Stream::CopiedAt Stream::copy_in(Ready& ready, const std::shared_ptr<SlotPool>& on_gpu) {
  return std::find_if(ready.copies.begin(), ready.copies.end(),
                      [&](const Copied& copy) { return copy.pool == on_gpu; });
}

Stream::CopiedAt Stream::copy_of(Ready& ready, const std::shared_ptr<SlotPool>& on_gpu) {
  const CopiedAt copy = copy_in(ready, on_gpu);
  return copy != ready.copies.end() && copy->there ? copy : ready.copies.end();
}

Stream::CopiedAt Stream::take_off(Ready& ready, CopiedAt copy) {
  SPDLD_CHECK(copy->expected > 0);
  return --copy->expected == 0 ? ready.copies.erase(copy) : std::next(copy);
}

void Stream::expect(Ready& ready, const std::shared_ptr<SlotPool>& on_gpu) {
  if (const CopiedAt copy = copy_of(ready, on_gpu); copy != ready.copies.end()) {
    copy->pool->expect(copy->slot);
    ++copy->expected;
  } else {
    pool_->expect(ready.slot);
    ++ready.expected;
  }
}

void Stream::forgo(Ready& ready, const Reader& reader) {
  const std::uint32_t others = awaited({ready.order.epoch, ready.order.step});
  bool elsewhere = false;
  for (auto copy = ready.copies.begin(); copy != ready.copies.end();) {
    if (!copy->there || (!reader.unplaced && copy->pool != reader.on_gpu)) {
      ++copy;
      continue;
    }
    if (reader.unplaced) {
      copy->pool->forgo(copy->slot);
      copy = take_off(ready, copy);
      continue;
    }
    elsewhere = true;
    // What nobody there has taken is not kept for those who may come.
    if (!copy->taken && copy->expected == others + 1) {
      copy = give_up(ready, copy);
    } else {
      copy->pool->forgo(copy->slot);
      copy = take_off(ready, copy);
    }
  }
  if (elsewhere) return;
  pool_->forgo(ready.slot);
  --ready.expected;
}

bool Stream::has_reader(const std::shared_ptr<SlotPool>& on_gpu) const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [&](const Reader& reader) { return reader.on_gpu == on_gpu; });
}

std::uint32_t Stream::awaited(job::StepAt at) const {
  return static_cast<std::uint32_t>(
      std::count_if(readers_.begin(), readers_.end(),
                    [&](const Reader& reader) { return reader.unplaced && reader.wants(at); }));
}

Stream::CopiedAt Stream::give_up(Ready& ready, CopiedAt copy) {
  for (; copy->expected > 0; --copy->expected) copy->pool->forgo(copy->slot);
  return ready.copies.erase(copy);
}

void Stream::left(const std::shared_ptr<SlotPool>& on_gpu) {
  if (on_gpu == nullptr || has_reader(on_gpu)) return;
  for (auto& [at, ready] : ready_) {
    const CopiedAt copy = copy_of(ready, on_gpu);
    if (copy != ready.copies.end()) give_up(ready, copy);
  }
}

void Stream::device_slot_freed() {
  {
    MutexLock lock(mutex_);
    begin_copies();
  }
  give_up_refused();
}

void Stream::begin_copies() {
  if (ended_) return;
  for (const Reader& reader : readers_) {
    if (reader.on_gpu == nullptr || !reader.on_gpu->has_memory()) continue;
    for (auto next = to_copy(reader.on_gpu); next != ready_.end(); next = to_copy(reader.on_gpu)) {
      if (reader.on_gpu->slots().counts().free == 0) break;
      begin_copy(next, reader.on_gpu);
    }
  }
}

// Slots there are filled in the order of steps: else those of later steps could be all there are,
// and be waited for by nobody.
Stream::ReadyAt Stream::to_copy(const std::shared_ptr<SlotPool>& on_gpu) {
  job::StepAt first = job::kNever;
  for (const Reader& reader : readers_) {
    if (reader.on_gpu != on_gpu) continue;
    job::StepAt at = timeline_.settled(reader.next);
    for (; at < reader.until; at = timeline_.settled({at.epoch, at.step + 1})) {
      const auto ready = ready_.find(at);
      if (ready == ready_.end()) break;
      if (copy_in(ready->second, on_gpu) == ready->second.copies.end()) break;
    }
    if (at < reader.until) first = std::min(first, at);
  }
  return ready_.find(first);
}

void Stream::begin_copy(ReadyAt ready, const std::shared_ptr<SlotPool>& on_gpu) {
  const std::uint32_t from = ready->second.slot;
  const auto to = on_gpu->loan();
  SPDLD_CHECK(to.has_value());
  // One more reader, so that readers may leave meanwhile.
  pool_->expect(from);
  const auto lease = pool_->acquire(from, copier_for(*on_gpu));
  SPDLD_CHECK(lease.has_value());
  ready->second.copies.push_back({.pool = on_gpu, .slot = *to});

  const std::byte* const slot = pool_->arena().slot(from).data();
  delivery::DeviceLayout::Parts parts = device_layout_.parts(slot, ready->second.order.rows.rows);
  const std::uint64_t base = on_gpu->device_place(*to).offset;
  delivery::DeviceCopy copy{.pinned = &on_gpu->pinned(),
                            .slot = from,
                            .to = &on_gpu->device_arena(),
                            .parts = {},
                            .beside = {}};
  for (const auto& part : parts.device)
    copy.parts.push_back({.from = slot + part.from, .to = base + part.to, .bytes = part.bytes});
  copy.beside = [slot, on_gpu, to = *to, host = std::move(parts.host)]() -> Status {
    SPDLD_TRY(on_gpu->arena().back(to));
    std::byte* const beside = on_gpu->arena().slot(to).data();
    for (const auto& part : host) std::memcpy(beside + part.to, slot + part.from, part.bytes);
    return {};
  };
  copy.wanted = [self = shared_from_this(), at = ready->first, on_gpu, to = *to, lease = *lease] {
    return self->may_begin_copy(at, on_gpu, to, lease);
  };
  on_gpu->gpu()->copy(std::move(copy), [self = shared_from_this(), at = ready->first, on_gpu,
                                        to = *to, lease = *lease](const Status& status) {
    self->end_copy(at, on_gpu, to, lease, status);
  });
}

// Copies may have queued up for a reader that has left: the memory that they would be written to is
// wanted elsewhere.
bool Stream::may_begin_copy(job::StepAt at, const std::shared_ptr<SlotPool>& on_gpu,
                            std::uint32_t slot, std::uint64_t lease) {
  MutexLock lock(mutex_);
  const auto wants = [&](const Reader& reader) {
    return reader.on_gpu == on_gpu && reader.wants(at);
  };
  if (ready_.contains(at) && std::any_of(readers_.begin(), readers_.end(), wants)) return true;
  settle_copy(at, on_gpu, slot, lease, 0);
  begin_copies();
  return false;
}

void Stream::settle_copy(job::StepAt at, const std::shared_ptr<SlotPool>& on_gpu,
                         std::uint32_t slot, std::uint64_t lease, std::uint32_t readers) {
  // Besides the slot in main memory.
  const std::uint32_t expected = readers > 0 ? readers + awaited(at) : 0;
  if (expected > 0) {
    on_gpu->commit(slot, expected);
  } else {
    on_gpu->abort(slot);
  }
  if (const ReadyAt found = ready_.find(at); found != ready_.end()) {
    const CopiedAt copy = copy_in(found->second, on_gpu);
    copy->there = expected > 0;
    copy->expected = expected;
    if (expected == 0) found->second.copies.erase(copy);
    if (found->second.is_read()) drop(found);
  }
  if (pool_->release(lease, copier_for(*on_gpu))) pool_->freed();
}

void Stream::end_copy(job::StepAt at, const std::shared_ptr<SlotPool>& on_gpu, std::uint32_t slot,
                      std::uint64_t lease, const Status& status) {
  ReaderRefs waiting;
  {
    MutexLock lock(mutex_);
    const ReadyAt found = ready_.find(at);  // unless nobody wants the batch any more
    std::uint32_t taking = 0;
    for (const Reader& reader : readers_) {
      if (found == ready_.end() || !status.ok()) break;
      if (reader.on_gpu != on_gpu || !reader.wants(at)) continue;
      ++taking;
      pool_->forgo(found->second.slot);
      --found->second.expected;
      if (reader.next != at) continue;
      if (auto ref = reader.reader.lock()) waiting.push_back(std::move(ref));
    }
    settle_copy(at, on_gpu, slot, lease, taking);
    if (!status.ok()) want_nothing(on_gpu);
    begin_copies();
  }
  for (const auto& reader : waiting) reader->ready();
  if (!status.ok()) give_up(on_gpu, status);
}

void Stream::want_nothing(const std::shared_ptr<SlotPool>& on_gpu) {
  for (Reader& reader : readers_) {
    if (reader.on_gpu != on_gpu) continue;
    forgo(reader, reader.next, reader.until);
    reader.until = reader.next;
  }
}

void Stream::give_up(const std::shared_ptr<SlotPool>& on_gpu, const Status& why) {
  for (const auto& reader : dismiss_from(on_gpu)) reader->failed({.status = why}, *this);
}

void Stream::give_up_refused() {
  std::vector<std::shared_ptr<SlotPool>> refused;
  {
    MutexLock lock(mutex_);
    for (const Reader& reader : readers_) {
      if (reader.on_gpu != nullptr && !reader.on_gpu->memory_failure().ok())
        refused.push_back(reader.on_gpu);
    }
  }
  for (const auto& on_gpu : refused) {
    for (const auto& reader : dismiss_from(on_gpu))
      reader->refused_memory(on_gpu->memory_failure(), *this);
  }
}

Stream::ReaderRefs Stream::dismiss_from(const std::shared_ptr<SlotPool>& on_gpu) {
  ReaderRefs left;
  std::vector<Reader> readers;
  {
    MutexLock lock(mutex_);
    std::copy_if(readers_.begin(), readers_.end(), std::back_inserter(readers),
                 [&](const Reader& reader) { return reader.on_gpu == on_gpu; });
  }
  for (const Reader& reader : readers) {
    if (reader.id == 0) {
      dismiss(reader.job, reader.replica);
      continue;
    }
    leave(reader.id);
    if (auto ref = reader.reader.lock()) left.push_back(std::move(ref));
  }
  return left;
}

}  // namespace spdld::stream

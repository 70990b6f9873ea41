// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/arena.h"
#include "delivery/slots.h"
#include "engine/executor.h"

namespace spdld::session {

// What a job's arenas take, and may take. Thread-safe; shared by the job and its pools, which may
// outlive it.
class ByteMeter {
 public:
  // 0: no limit.
  void set_limit(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  std::uint64_t used() const SPDLD_EXCLUDES(mutex_);
  // The error names both figures.
  Status reserve(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  void release(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::uint64_t limit_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t used_ SPDLD_GUARDED_BY(mutex_) = 0;
};

// An arena and whose its slots are: what one stream writes to, and maybe the next one after a seek.
// Shared by streams and by the consumers that were shown the arena, who keep it until their
// processes can read it no more; with the last of them it goes back to where arenas are kept, all
// slots being free by then. Thread-safe.
class SlotPool {
 public:
  static Result<std::shared_ptr<SlotPool>> create(const delivery::ArenaShape& shape, uid_t uid,
                                                  delivery::ArenaPool& home,
                                                  std::shared_ptr<ByteMeter> meter,
                                                  engine::Executor& executor);
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  uid_t uid() const { return uid_; }
  delivery::Arena& arena() const { return *arena_; }
  delivery::SlotTable& slots() { return slots_; }

  // The stream that is to hear of slots that become free.
  void serve(engine::StreamId stream) { stream_.store(stream, std::memory_order_release); }
  void freed() const;

 private:
  SlotPool(std::unique_ptr<delivery::Arena> arena, uid_t uid, delivery::ArenaPool& home,
           std::shared_ptr<ByteMeter> meter, engine::Executor& executor);

  std::unique_ptr<delivery::Arena> arena_;
  delivery::SlotTable slots_;
  const uid_t uid_;
  delivery::ArenaPool& home_;
  const std::shared_ptr<ByteMeter> meter_;
  engine::Executor& executor_;
  std::atomic<engine::StreamId> stream_{0};  // 0: none; read by whoever frees a slot
};

}  // namespace spdld::session

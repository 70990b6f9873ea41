// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "delivery/arena.h"
#include "delivery/memory_probe.h"

namespace spdld::delivery {

// What is kept of arenas that nobody reads: no more than any of these.
struct IdleArenaLimits {
  std::uint64_t bytes = 0;
  std::size_t arenas = 32;
  std::chrono::nanoseconds age = std::chrono::seconds(30);  // 0: none is kept
};

// Makes arenas and keeps those whose consumers have exited, for a while, so that a restarted
// trainer finds warm memory. What it keeps counts against the budget and is let go, oldest first,
// when the budget is needed, and all of it when descriptors are. Unmapping an arena takes the
// kernel a while: the pool's own thread ("spdld-arena") does it, so that nobody who gives one back
// waits. Thread-safe, under any lock: no call takes or frees pages, but for take() when the machine
// itself is short of memory. Outlives its arenas.
class ArenaPool {
 public:
  ArenaPool(ArenaBudget& budget, IdleArenaLimits limits, const Clock& clock);
  ~ArenaPool();
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  // Arenas of one uid never go to another.
  Result<std::unique_ptr<Arena>> take(const ArenaShape& shape, uid_t uid) SPDLD_EXCLUDES(mutex_);
  // Only when every process that was given its fd has exited; else bury() it.
  void give_back(std::unique_ptr<Arena> arena, uid_t uid) SPDLD_EXCLUDES(mutex_);
  // It is used by nobody here any more. Its memory ends with the last mapping of a consumer.
  void bury(std::unique_ptr<Arena> arena) SPDLD_EXCLUDES(mutex_);

  // Every second or so: lets go what has been idle too long.
  void tick() SPDLD_EXCLUDES(mutex_);
  // Lets all idle ones go: what they hold is needed elsewhere.
  void release_idle() SPDLD_EXCLUDES(mutex_);
  // Until what has been let go is unmapped and closed.
  void settle() SPDLD_EXCLUDES(mutex_);
  std::uint64_t idle_bytes() const SPDLD_EXCLUDES(mutex_);

 private:
  struct Idle {
    std::unique_ptr<Arena> arena;
    uid_t uid;
    std::chrono::nanoseconds since;
  };

  // After an arena could not be made: false if the pool has nothing that could help.
  bool make_room(std::uint64_t bytes, uid_t uid) SPDLD_EXCLUDES(mutex_);
  void let_go(std::size_t index) SPDLD_REQUIRES(mutex_);
  void free_one() SPDLD_REQUIRES(mutex_);
  void run() SPDLD_EXCLUDES(mutex_);

  ArenaBudget& budget_;
  const IdleArenaLimits limits_;
  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Idle> idle_ SPDLD_GUARDED_BY(mutex_);  // oldest first
  std::uint64_t idle_bytes_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::deque<std::unique_ptr<Arena>> buried_ SPDLD_GUARDED_BY(mutex_);
  int freeing_ SPDLD_GUARDED_BY(mutex_) = 0;  // threads that unmap one now
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  std::uint32_t next_id_ SPDLD_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace spdld::delivery

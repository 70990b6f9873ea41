// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "delivery/arena.h"

namespace spdld::delivery {

Result<std::unique_ptr<Arena>> ArenaPool::take(const ArenaShape& shape, uid_t uid) {
  std::uint32_t id = 0;
  {
    MutexLock lock(mutex_);
    id = next_id_++;
    const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Idle& idle) {
      return idle.uid == uid && idle.arena->shape() == shape;
    });
    if (found != idle_.rend()) {
      std::unique_ptr<Arena> arena = std::move(found->arena);
      idle_.erase(std::next(found).base());
      idle_bytes_ -= arena->total_bytes();
      arena->rename(id);
      return arena;
    }
  }
  for (;;) {
    auto made = Arena::create(shape, id, budget_);
    if (made || made.error().code() != Code::kResourceExhausted) return made;
    std::unique_ptr<Arena> dropped;
    MutexLock lock(mutex_);
    if (idle_.empty()) return made;
    dropped = std::move(idle_.front().arena);
    idle_.erase(idle_.begin());
    idle_bytes_ -= dropped->total_bytes();
  }
}

void ArenaPool::give_back(std::unique_ptr<Arena> arena, uid_t uid) {
  std::vector<std::unique_ptr<Arena>> dropped;  // unmapped after the lock is gone
  MutexLock lock(mutex_);
  idle_bytes_ += arena->total_bytes();
  idle_.push_back({std::move(arena), uid});
  while (idle_bytes_ > max_idle_bytes_) {
    idle_bytes_ -= idle_.front().arena->total_bytes();
    dropped.push_back(std::move(idle_.front().arena));
    idle_.erase(idle_.begin());
  }
}

void ArenaPool::clear() {
  std::vector<Idle> dropped;
  MutexLock lock(mutex_);
  dropped.swap(idle_);
  idle_bytes_ = 0;
}

std::uint64_t ArenaPool::idle_bytes() const {
  MutexLock lock(mutex_);
  return idle_bytes_;
}

}  // namespace spdld::delivery

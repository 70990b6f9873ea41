// SPDX-License-Identifier: Apache-2.0
#include "delivery/arena_pool.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace spdld::delivery {
namespace {

// With fewer descriptors left than these, idle arenas keep none.
constexpr rlim_t kSpareDescriptors = 32;

// A new descriptor has the lowest free number: whether hardly any are left.
bool descriptors_are_short(int newest) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(newest) + kSpareDescriptors >= limit.rlim_cur;
}

}  // namespace

ArenaPool::ArenaPool(ArenaBudget& budget, IdleArenaLimits limits, const Clock& clock)
    : budget_(budget), limits_(limits), clock_(clock), thread_([this] { run(); }) {}

ArenaPool::~ArenaPool() {
  release_idle();
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

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
    auto made = Arena::create(shape, id, budget_, uid);
    if (made && descriptors_are_short((*made)->client_fd())) release_idle();
    if (made || made.error().code() != Code::kResourceExhausted) return made;
    if (!make_room(arena_bytes(shape), uid)) return made;
  }
}

bool ArenaPool::make_room(std::uint64_t bytes, uid_t uid) {
  const ArenaBudget::Room room = budget_.room_for(bytes, uid);
  {
    MutexLock lock(mutex_);
    const bool none_leaves = buried_.empty() && freeing_ == 0;
    const auto helps = [&](const Idle& idle) {
      return room != ArenaBudget::Room::kUserFull || idle.uid == uid;
    };
    const auto oldest = std::find_if(idle_.begin(), idle_.end(), helps);
    if (oldest == idle_.end() && (none_leaves || room != ArenaBudget::Room::kEnough)) return false;
    if (oldest != idle_.end() && (none_leaves || room != ArenaBudget::Room::kEnough)) {
      let_go(static_cast<std::size_t>(oldest - idle_.begin()));
      if (room != ArenaBudget::Room::kEnough) return true;  // its part of the budget is free
    }
  }
  // The machine has no memory, or no descriptors: what is let go must be gone.
  settle();
  return true;
}

void ArenaPool::give_back(std::unique_ptr<Arena> arena, uid_t uid) {
  MutexLock lock(mutex_);
  idle_bytes_ += arena->total_bytes();
  idle_.push_back({std::move(arena), uid, clock_.now()});
  while (!idle_.empty() && (idle_bytes_ > limits_.bytes || idle_.size() > limits_.arenas ||
                            limits_.age <= std::chrono::nanoseconds(0)))
    let_go(0);
}

void ArenaPool::bury(std::unique_ptr<Arena> arena) {
  MutexLock lock(mutex_);
  arena->give_up_budget();
  buried_.push_back(std::move(arena));
  changed_.notify_all();
}

void ArenaPool::let_go(std::size_t index) {
  const auto idle = idle_.begin() + static_cast<std::ptrdiff_t>(index);
  idle_bytes_ -= idle->arena->total_bytes();
  idle->arena->give_up_budget();
  buried_.push_back(std::move(idle->arena));
  idle_.erase(idle);
  changed_.notify_all();
}

void ArenaPool::tick() {
  const std::chrono::nanoseconds now = clock_.now();
  MutexLock lock(mutex_);
  while (!idle_.empty() && now - idle_.front().since >= limits_.age) let_go(0);
}

void ArenaPool::release_idle() {
  MutexLock lock(mutex_);
  while (!idle_.empty()) let_go(0);
}

void ArenaPool::free_one() {
  std::unique_ptr<Arena> arena = std::move(buried_.front());
  buried_.pop_front();
  ++freeing_;
  mutex_.unlock();
  arena.reset();
  mutex_.lock();
  --freeing_;
  changed_.notify_all();
}

void ArenaPool::settle() {
  MutexLock lock(mutex_);
  while (!buried_.empty() || freeing_ > 0) {
    if (buried_.empty()) {
      changed_.wait(mutex_);
    } else {
      free_one();
    }
  }
}

void ArenaPool::run() {
  ::pthread_setname_np(::pthread_self(), "spdld-arena");
  MutexLock lock(mutex_);
  while (!stopping_ || !buried_.empty()) {
    if (buried_.empty()) {
      changed_.wait(mutex_);
    } else {
      free_one();
    }
  }
}

std::uint64_t ArenaPool::idle_bytes() const {
  MutexLock lock(mutex_);
  return idle_bytes_;
}

}  // namespace spdld::delivery

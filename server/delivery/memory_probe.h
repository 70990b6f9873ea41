// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace spdld::delivery {

// Where the kernel tells how much memory there is; tests point it at files of their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string self_cgroup = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string smaps = "/proc/self/smaps_rollup";
};

// The tightest bound on what this process may still take.
struct MemoryRoom {
  std::uint64_t available_bytes = 0;
  std::string bound_by;  // "cgroup /a/b: limit 1.0 GiB, in use 0.9 GiB" or "the machine: ..."
};

// MemAvailable, and limit less usage of this process's cgroup and of all above it (v1 and v2; page
// cache that the kernel would drop counts as free). A file that is not there bounds nothing.
MemoryRoom memory_room(const MemoryFiles& files = {});

// What this process could have if it were alone: the machine's memory, or the tightest limit of its
// cgroup and of all above it. 0 when nothing tells.
std::uint64_t memory_total(const MemoryFiles& files = {});

// This process's memory, of pages that it shares its part (PSS); none: the kernel does not tell.
// All of its pages are looked at, which takes a while.
std::optional<std::uint64_t> own_memory(const MemoryFiles& files = {});

// own_memory() as it was when it was last looked at: 10 s ago at most, or fifty times as long as
// the look took. So a process of many pages spends little on it, however often it is asked.
class OwnMemory {
 public:
  explicit OwnMemory(const Clock& clock, MemoryFiles files = {})
      : clock_(clock), files_(std::move(files)) {}
  std::optional<std::uint64_t> bytes() SPDLD_EXCLUDES(mutex_);

 private:
  const Clock& clock_;
  const MemoryFiles files_;
  Mutex mutex_;
  std::optional<std::uint64_t> bytes_ SPDLD_GUARDED_BY(mutex_);
  std::optional<std::chrono::nanoseconds> next_look_ SPDLD_GUARDED_BY(mutex_);
};

// "38.5 MiB"
std::string format_bytes(std::uint64_t bytes);

// The share of the budget that each user is limited to.
struct UserShare {
  std::uint64_t bytes = ~std::uint64_t{0};
  std::vector<uid_t> unbound = {};  // the admins and the daemon's own user: they have all of it
};

// Bounds the sum of all arenas, and of each user's. Thread-safe. Outlives its reservations.
class ArenaBudget {
 public:
  // Bytes that are set aside until it dies. Move-only.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { reset(); }
    std::uint64_t bytes() const { return bytes_; }
    void reset();

   private:
    friend class ArenaBudget;
    Reservation(ArenaBudget* budget, std::uint64_t bytes, uid_t uid)
        : budget_(budget), bytes_(bytes), uid_(uid) {}
    ArenaBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
    uid_t uid_ = 0;
  };

  // Bytes of /dev/shm that an arena has yet to take, until it dies. Move-only.
  class ShmPromise {
   public:
    ShmPromise() = default;
    ShmPromise(ShmPromise&& other) noexcept;
    ShmPromise& operator=(ShmPromise&& other) noexcept;
    ~ShmPromise() { reset(); }
    // So many of them have been taken. Any thread.
    void keep(std::uint64_t bytes);

   private:
    friend class ArenaBudget;
    ShmPromise(ArenaBudget* budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    void reset();
    ArenaBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;  // under the budget's lock
  };

  explicit ArenaBudget(std::uint64_t limit_bytes, MemoryFiles files = {}, UserShare share = {});

  // From now on; what is in use stays, also beyond it. `share_bytes`: what one user may have of it.
  void set_limit(std::uint64_t limit_bytes, std::uint64_t share_bytes);
  // kResourceExhausted, with the numbers and the way out, when the budget, the user's share, the
  // cgroup or the machine has no room for it. `what` names what it is for.
  Result<Reservation> reserve(std::uint64_t bytes, uid_t uid, const std::string& what);
  // None if /dev/shm, which has `free_bytes`, does not have so much beside what others have yet to
  // take.
  std::optional<ShmPromise> promise_shm(std::uint64_t bytes, std::uint64_t free_bytes);

  enum class Room { kEnough, kUserFull, kFull };
  Room room_for(std::uint64_t bytes, uid_t uid) const;

  std::uint64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t used_bytes() const;
  // Of arenas that were made for this user's consumers, idle and retired ones, too.
  std::uint64_t used_bytes(uid_t uid) const;
  // The same of all users who have any.
  std::map<uid_t, std::uint64_t> used_by_users() const;
  // What this user may have of it; none: this user is not bound.
  std::optional<std::uint64_t> share_bytes(uid_t uid) const;
  // What this user may have; the whole budget if it is not bound.
  std::uint64_t limit_bytes(uid_t uid) const;

 private:
  void give_back(std::uint64_t bytes, uid_t uid);
  Room room(std::uint64_t bytes, uid_t uid) const SPDLD_REQUIRES(mutex_);
  std::uint64_t used_by(uid_t uid) const SPDLD_REQUIRES(mutex_);

  // Relaxed, as the next one: each is a bound by itself.
  std::atomic<std::uint64_t> limit_bytes_;
  std::atomic<std::uint64_t> share_bytes_;
  const MemoryFiles files_;
  const UserShare share_;  // but for `bytes`
  mutable Mutex mutex_;
  std::uint64_t used_bytes_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, std::uint64_t> used_by_user_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t promised_shm_ SPDLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace spdld::delivery

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"

namespace spdld::delivery {

// Where the kernel tells how much memory there is; tests point it at files of their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string self_cgroup = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
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

// "38.5 MiB"
std::string format_bytes(std::uint64_t bytes);

// Bounds the sum of all arenas. Thread-safe. Outlives its reservations.
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
    Reservation(ArenaBudget* budget, std::uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ArenaBudget* budget_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  explicit ArenaBudget(std::uint64_t limit_bytes, MemoryFiles files = {});

  // kResourceExhausted, with the numbers and the way out, when the budget, the cgroup or the
  // machine has no room for it. `what` names what it is for.
  Result<Reservation> reserve(std::uint64_t bytes, const std::string& what);

  std::uint64_t limit_bytes() const { return limit_bytes_; }
  std::uint64_t used_bytes() const;

 private:
  void give_back(std::uint64_t bytes);

  const std::uint64_t limit_bytes_;
  const MemoryFiles files_;
  mutable Mutex mutex_;
  std::uint64_t used_bytes_ SPDLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace spdld::delivery

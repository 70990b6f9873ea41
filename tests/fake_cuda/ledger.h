// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "posix/unique_fd.h"
#include "tests/fake_cuda/devices.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace spdld::fake_cuda {

// What one process holds, in memory that all processes of a ledger map. Its process alone writes
// it; another one takes it over when that is dead. Hence atomics, of a size that all builds share.
struct LedgerEntry {
  using Count = std::atomic<std::uint64_t>;

  Count pid;      // 0: of no process
  Count started;  // field 22 of /proc/PID/stat: a pid that was given again is another process
  std::array<Count, kMostDevices> contexts;      // by Device::index
  std::array<Count, kMostDevices> device_bytes;  // the same
  Count registrations;
  Count registered_bytes;
  Count host_allocations;
  Count streams;
  Count events;
  Count left_behind;
  Count handles;
  Count reservations;
  Count mapped_ranges;
};
static_assert(LedgerEntry::Count::is_always_lock_free);
static_assert(sizeof(LedgerEntry) == 8 * (11 + 2 * kMostDevices));

// What all processes hold of the machine's devices, in a file that each of them maps, or in memory
// of this process alone. What a process held goes when it is dead, as the driver has it. A process
// opens it once, under the lock of the driver; the file's own lock orders processes.
class Ledger {
 public:
  // An empty `path` is a ledger of this process alone. Ends the process if it cannot be opened.
  explicit Ledger(const std::string& path);
  // Only looks into the ledger of other processes; check `found`.
  struct ReadOnly {};
  Ledger(const std::string& path, ReadOnly);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  bool found() const { return file_ != nullptr; }

  // Of this process, once it has entered. Never null then.
  LedgerEntry& own() { return *own_; }
  void enter();

  // Of which ledger physical memory is.
  std::uint32_t id() const;

  // What all processes hold of a device's memory, in bytes.
  std::uint64_t held(int device) const;
  // Takes memory of a device, by cuMemAlloc, unless all processes together would then hold more
  // than `limit`.
  bool take(int device, std::uint64_t bytes, std::uint64_t limit);
  // Has `create` create physical memory of so many bytes under the same condition.
  bool take(int device, std::uint64_t bytes, std::uint64_t limit,
            const std::function<bool()>& create);
  void give_back(int device, std::uint64_t bytes) { own_->device_bytes[device] -= bytes; }

  // Counts this process's context of the device, unless `alone` and another process has one.
  bool add_context(int device, bool alone);

  FakeCudaCounts own_counts() const;
  FakeCudaCounts all_counts() const;

 private:
  struct File;

  std::uint64_t held_under_lock(int device) const;
  void for_each_living(const std::function<void(LedgerEntry&)>& look) const;

  UniqueFd fd_;
  File* file_ = nullptr;
  LedgerEntry* own_ = nullptr;
};

}  // namespace spdld::fake_cuda

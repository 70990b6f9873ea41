// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace spdld::delivery {

using HolderId = std::uint64_t;  // of a consumer: Connection::id()

enum class SlotState {
  kFree,
  kLoaned,   // being written
  kReady,    // written; not every reader has acquired it
  kLeased,   // every reader has acquired it, and some have not released it
  kRetired,  // taken from a live process, which may still read it
};

// Which slots of one arena are whose. Thread-safe; any order of calls is survived: what a consumer
// gets wrong is counted and answered with a Status, never trusted.
//
//            loan            commit(readers)         last acquire          last release
//   FREE ---------> LOANED ---------------> READY ----------------> LEASED ------------> FREE
//                     | abort                 | discard, forgo         | reclaim(dead) --> FREE
//                     +------> FREE           +------> FREE            | retire(alive)
//                                                                      v
//                                                                   RETIRED -- exited --> FREE
//
// A lease id is slot index | epoch of the slot << 32: the epoch counts the slot's loans, so that a
// late release never meets another batch. Epochs start at a random number.
class SlotTable {
 public:
  struct Counts {
    std::uint32_t free = 0;
    std::uint32_t loaned = 0;
    std::uint32_t ready = 0;
    std::uint32_t leased = 0;
    std::uint32_t retired = 0;
    std::uint64_t bad_releases = 0;  // wrong, late or repeated
  };

  explicit SlotTable(std::uint32_t slot_count);

  // Writer. A slot to write to, or nothing when none is free.
  std::optional<std::uint32_t> loan();
  // The slot is written, and `readers` consumers are to acquire it; with 0 it is free again.
  void commit(std::uint32_t slot, std::uint32_t readers = 1);
  // What was being written is given up.
  void abort(std::uint32_t slot);

  // Reader. The lease to be sent with the batch. Fails with kFailedPrecondition if the slot is not
  // ready or `holder` has it already.
  Result<std::uint64_t> acquire(std::uint32_t slot, HolderId holder);
  // True when that made the slot free. kNotFound when `holder` has no such lease.
  Result<bool> release(std::uint64_t lease, HolderId holder);
  // One reader more is to acquire the slot, which is ready: others have yet to acquire it, too.
  void expect(std::uint32_t slot);
  // One reader fewer will acquire the slot. True when that made it free.
  bool forgo(std::uint32_t slot);
  // No further reader will acquire it (a seek made it useless). True when that made it free.
  bool discard(std::uint32_t slot);

  // The holder's process has exited: everything it had, retired slots too, is taken back. Returns
  // how many slots became free. Idempotent.
  std::uint32_t reclaim(HolderId holder);
  // The holder has lost its connection but may still read: what it has is never written again
  // until reclaim(). Returns how many slots it concerned. Idempotent.
  std::uint32_t retire(HolderId holder);

  // Leases that `holder` has and may still release.
  std::uint32_t held(HolderId holder) const;
  // Whether one of these is in `slot`.
  bool holds(std::uint32_t slot, HolderId holder) const;
  SlotState state(std::uint32_t slot) const;
  Counts counts() const;
  // A holder that has lost its connection still has a slot, alone or with others.
  bool has_retired() const;
  // True when every slot is free: the arena may go.
  bool idle() const;

  static std::uint32_t slot_of(std::uint64_t lease) { return static_cast<std::uint32_t>(lease); }

 private:
  struct Slot {
    std::uint32_t epoch = 0;
    bool loaned = false;
    std::uint32_t expected = 0;      // readers that have yet to acquire it
    std::vector<HolderId> holders;   // may release it
    std::vector<HolderId> retirees;  // may only exit
  };

  static SlotState state_of(const Slot& slot);
  bool settle(std::uint32_t index) SPDLD_REQUIRES(mutex_);  // true: it became free

  mutable Mutex mutex_;
  std::vector<Slot> slots_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ SPDLD_GUARDED_BY(mutex_);  // the one used last goes first: warm
  std::uint64_t bad_releases_ SPDLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace spdld::delivery

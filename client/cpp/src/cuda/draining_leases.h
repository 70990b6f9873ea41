// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "batch_state.h"
#include "cuda/device.h"
#include "cuda/last_reads.h"
#include "cuda/mapped_arena.h"

namespace spdld::client::cuda {

// Leases of batches in a daemon's memory that were let go of while streams may read them. Each ends
// when those are through, and with the last one in it an arena is unmapped. Shared by the loader,
// which calls reap() at each next(), and by the batches. After close() nobody looks after them, and
// add() waits. What a captured stream reads to the end of the process, or what the driver cannot
// tell about, is kept: the daemon is not told that it is free. Thread-safe.
class DrainingLeases {
 public:
  explicit DrainingLeases(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~DrainingLeases();
  DrainingLeases(const DrainingLeases&) = delete;
  DrainingLeases& operator=(const DrainingLeases&) = delete;

  // Of a batch that was handed to these streams and is let go of now. Where they are through with
  // it, its lease ends at once, and so do earlier ones.
  void add(std::vector<Reader> readers, std::shared_ptr<Lease> lease,
           std::shared_ptr<MappedArena> arena);
  // Ends the leases that no stream reads under any more. Throws DeviceError.
  void reap();
  std::uint32_t draining() const;  // that end without our doing
  std::uint32_t captured() const;  // of which a stream is yet to be noted
  void close();

 private:
  struct Draining {
    LastReads reads;
    std::shared_ptr<MappedArena> arena;
    std::shared_ptr<Lease> lease;  // ends first
  };

  // As reap(), where nobody is there to be told of a failure.
  void reap_unheard();
  // Waits until they are over. Returns those that cannot be waited for.
  std::vector<Draining> wait_for(std::vector<Draining> draining) const;
  static void keep(Draining& draining);

  const std::shared_ptr<Device> device_;
  mutable std::mutex mutex_;
  bool closed_ = false;             // guarded by mutex_
  std::vector<Draining> draining_;  // likewise; the oldest first
};

}  // namespace spdld::client::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "delivery/cuda/context.h"
#include "delivery/device_memory.h"

namespace spdld::delivery::cuda {

// The slots that are registered with the driver, for all GPUs: the driver takes each but once, and
// forgets it with the context that registered it, which is held until then. Thread-safe.
class Registrations {
 public:
  // One more GPU copies from the slot. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: the driver still
  // knows these addresses from before, and would read what was there then.
  CUresult add(std::span<std::byte> slot, const std::shared_ptr<const Context>& context)
      SPDLD_EXCLUDES(mutex_);
  // One less; the last one undoes it.
  CUresult remove(std::span<std::byte> slot) SPDLD_EXCLUDES(mutex_);

 private:
  struct Registration {
    std::shared_ptr<const Context> context;
    int users = 1;
  };

  // The slot is the caller's alone to register or to let go of: the driver may take its time, and
  // other slots do not wait for it.
  void begin(const std::byte* slot) SPDLD_REQUIRES(mutex_);
  void end(const std::byte* slot) SPDLD_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::set<const std::byte*> changing_ SPDLD_GUARDED_BY(mutex_);
  std::map<const std::byte*, Registration> registrations_ SPDLD_GUARDED_BY(mutex_);
};

// Slots of one arena that a GPU copies from. Where the driver refuses to register them, copies go
// by a buffer of its own, which the log tells once. The thread of the copies alone.
class PinnedSlots final : public PinnedArena {
 public:
  PinnedSlots(Arena& arena, std::shared_ptr<const Context> context,
              std::shared_ptr<Registrations> registrations)
      : arena_(arena),
        context_(std::move(context)),
        registrations_(std::move(registrations)),
        pinned_(arena.shape().slot_count) {}
  ~PinnedSlots() override;

  // The slot's pages have been allocated. An error: it cannot be copied from at all.
  Status pin(std::uint32_t slot);

 private:
  Arena& arena_;
  const std::shared_ptr<const Context> context_;
  const std::shared_ptr<Registrations> registrations_;
  std::vector<bool> pinned_;
  bool refused_ = false;
};

}  // namespace spdld::delivery::cuda

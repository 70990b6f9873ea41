// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "delivery/cuda/context.h"
#include "delivery/device_memory.h"

namespace spdld::delivery::cuda {

// Slots of one arena that are registered with the driver. Where it refuses, copies go by a buffer
// of the driver's own, which the log tells once. The thread of the copies alone.
class PinnedSlots final : public PinnedArena {
 public:
  PinnedSlots(Arena& arena, std::shared_ptr<const Context> context)
      : arena_(arena), context_(std::move(context)), pinned_(arena.shape().slot_count) {}
  ~PinnedSlots() override;

  // What there is of the slot's pages is there already.
  void pin(std::uint32_t slot);

 private:
  Arena& arena_;
  const std::shared_ptr<const Context> context_;
  std::vector<bool> pinned_;
  bool refused_ = false;
};

}  // namespace spdld::delivery::cuda

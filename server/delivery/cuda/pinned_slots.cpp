// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/pinned_slots.h"

#include "base/log.h"

namespace spdld::delivery::cuda {

PinnedSlots::~PinnedSlots() {
  const Current current(*context_);
  if (!current.status().ok()) return;
  for (std::uint32_t slot = 0; slot < pinned_.size(); ++slot) {
    if (pinned_[slot]) context_->functions().MemHostUnregister(arena_.slot(slot).data());
  }
}

void PinnedSlots::pin(std::uint32_t slot) {
  if (pinned_[slot] || refused_) return;
  const std::span<std::byte> memory = arena_.slot(slot);
  const Status registered =
      context_->status(context_->functions().MemHostRegister(memory.data(), memory.size(),
                                                             CU_MEMHOSTREGISTER_PORTABLE),
                       "registering a slot");
  pinned_[slot] = registered.ok();
  refused_ = !registered.ok();
  if (refused_)
    spdlog::warn("{}; batches are copied there by a buffer of the driver's, which is slower",
                 registered.message());
}

}  // namespace spdld::delivery::cuda

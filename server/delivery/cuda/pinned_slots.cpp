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
  const CUresult result = context_->functions().MemHostRegister(memory.data(), memory.size(),
                                                                CU_MEMHOSTREGISTER_PORTABLE);
  // Another GPU copies from it too, and has registered it for all of them.
  if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return;
  const Status registered = context_->status(result, "registering a slot");
  pinned_[slot] = registered.ok();
  refused_ = !registered.ok();
  if (refused_)
    spdlog::warn("{}; batches are copied there by a buffer of the driver's, which is slower",
                 registered.message());
}

}  // namespace spdld::delivery::cuda

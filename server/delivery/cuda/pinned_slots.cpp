// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/pinned_slots.h"

#include "base/log.h"

namespace spdld::delivery::cuda {

CUresult Registrations::add(std::span<std::byte> slot, const Context& context) {
  MutexLock lock(mutex_);
  const auto known = users_.find(slot.data());
  if (known != users_.end()) {
    ++known->second;
    return CUDA_SUCCESS;
  }
  const CUresult result =
      context.functions().MemHostRegister(slot.data(), slot.size(), CU_MEMHOSTREGISTER_PORTABLE);
  if (result == CUDA_SUCCESS) users_.emplace(slot.data(), 1);
  return result;
}

CUresult Registrations::remove(std::span<std::byte> slot, const Context& context) {
  MutexLock lock(mutex_);
  const auto known = users_.find(slot.data());
  if (--known->second > 0) return CUDA_SUCCESS;
  users_.erase(known);
  return context.functions().MemHostUnregister(slot.data());
}

PinnedSlots::~PinnedSlots() {
  const Current current(*context_);
  Status kept;
  for (std::uint32_t slot = 0; slot < pinned_.size(); ++slot) {
    if (!pinned_[slot]) continue;
    const CUresult removed = registrations_->remove(arena_.slot(slot), *context_);
    if (kept.ok()) kept = context_->status(removed, "letting go of a registered slot");
  }
  if (!kept.ok()) spdlog::error("{}", kept.message());
}

Status PinnedSlots::pin(std::uint32_t slot) {
  if (pinned_[slot] || refused_) return {};
  const CUresult result = registrations_->add(arena_.slot(slot), *context_);
  Status registered = context_->status(result, "registering a slot");
  if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return registered;
  pinned_[slot] = registered.ok();
  refused_ = !registered.ok();
  if (refused_)
    spdlog::warn("{}; batches are copied there by a buffer of the driver's, which is slower",
                 registered.message());
  return {};
}

}  // namespace spdld::delivery::cuda

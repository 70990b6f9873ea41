// SPDX-License-Identifier: Apache-2.0
#include "delivery/cuda/pinned_slots.h"

#include "base/log.h"

namespace spdld::delivery::cuda {

void Registrations::begin(const std::byte* slot) {
  while (changing_.contains(slot)) changed_.wait(mutex_);
  changing_.insert(slot);
}

void Registrations::end(const std::byte* slot) {
  changing_.erase(slot);
  changed_.notify_all();
}

CUresult Registrations::add(std::span<std::byte> slot,
                            const std::shared_ptr<const Context>& context) {
  {
    MutexLock lock(mutex_);
    begin(slot.data());
    const auto known = registrations_.find(slot.data());
    if (known != registrations_.end()) {
      ++known->second.users;
      end(slot.data());
      return CUDA_SUCCESS;
    }
  }
  const CUresult result =
      context->functions().MemHostRegister(slot.data(), slot.size(), CU_MEMHOSTREGISTER_PORTABLE);
  MutexLock lock(mutex_);
  if (result == CUDA_SUCCESS) registrations_.emplace(slot.data(), Registration{.context = context});
  end(slot.data());
  return result;
}

CUresult Registrations::remove(std::span<std::byte> slot) {
  std::shared_ptr<const Context> context;
  {
    MutexLock lock(mutex_);
    begin(slot.data());
    const auto known = registrations_.find(slot.data());
    if (--known->second.users > 0) {
      end(slot.data());
      return CUDA_SUCCESS;
    }
    context = std::move(known->second.context);
    registrations_.erase(known);
  }
  CUresult result = CUDA_SUCCESS;
  {
    const Current current(*context);
    result = context->functions().MemHostUnregister(slot.data());
  }
  MutexLock lock(mutex_);
  end(slot.data());
  return result;
}

PinnedSlots::~PinnedSlots() {
  Status first_failure;
  for (std::uint32_t slot = 0; slot < pinned_.size(); ++slot) {
    if (!pinned_[slot]) continue;
    const CUresult removed = registrations_->remove(arena_.slot(slot));
    if (first_failure.ok())
      first_failure = context_->status(removed, "letting go of a registered slot");
  }
  if (!first_failure.ok()) spdlog::error("{}", first_failure.message());
}

Status PinnedSlots::pin(std::uint32_t slot) {
  if (pinned_[slot] || refused_) return {};
  const CUresult result = registrations_->add(arena_.slot(slot), context_);
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

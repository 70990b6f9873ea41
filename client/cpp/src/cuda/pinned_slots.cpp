// SPDX-License-Identifier: Apache-2.0
#include "cuda/pinned_slots.h"

#include "text.h"

namespace spdld::client::cuda {

PinnedSlots::~PinnedSlots() {
  const Current current(*device_);
  if (!current) return;
  for (const std::byte* slot : pinned_)
    device_->functions().MemHostUnregister(const_cast<std::byte*>(slot));
}

bool PinnedSlots::pin(const std::byte* slot, std::uint64_t bytes, std::string& why) {
  if (pinned_.contains(slot)) return true;
  if (device_->attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) == 0) {
    why = "the driver cannot register memory that this process may only read";
    return false;
  }
  const CUresult result = device_->functions().MemHostRegister(
      const_cast<std::byte*>(slot), bytes,
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
  if (result != CUDA_SUCCESS) {
    why = join("registering ", bytes, " bytes of an arena with the driver: ",
               spdld::cuda::error_text(device_->functions(), result));
    return false;
  }
  pinned_.insert(slot);
  return true;
}

}  // namespace spdld::client::cuda

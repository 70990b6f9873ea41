// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "cuda/driver.h"
#include "delivery/device_memory.h"

namespace spdld::delivery::cuda {

using spdld::cuda::Functions;

// Fills in what a GPU is: the driver's number of it, its UUID, name and memory. If the driver fails
// to tell, `facts` names it by its index, says so in `why_not`, and has no UUID.
Status identify(const Functions& functions, int ordinal, CUdevice& device, DeviceFacts& facts);

// Fills in its compute mode, and why batches cannot be delivered to it. An operator may change the
// mode at any time.
void check_deliverable(const Functions& functions, CUdevice device, DeviceFacts& facts);

}  // namespace spdld::delivery::cuda

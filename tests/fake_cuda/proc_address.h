// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

namespace spdld::fake_cuda {

// A function of the driver as cuGetProcAddress finds it; null with the reason in `status`.
void* find_function(const char* name, int version, CUdriverProcAddressQueryResult* status);

}  // namespace spdld::fake_cuda

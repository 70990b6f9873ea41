// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress as drivers have it since CUDA 11.3; headers call only the newer one by this
// name.
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/proc_address.h"

#undef cuGetProcAddress

namespace spdld::fake_cuda {

// NOLINTNEXTLINE(readability-identifier-naming): the driver names it so.
FAKE_CUDA_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version,
                                           cuuint64_t) {
  if (name == nullptr || function == nullptr || version > environment().version)
    return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult found{};
  *function = find_function(name, version, &found);
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace spdld::fake_cuda

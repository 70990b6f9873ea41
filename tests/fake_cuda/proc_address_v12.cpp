// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress as drivers have it since CUDA 12.
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/proc_address.h"

namespace spdld::fake_cuda {

FAKE_CUDA_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version,
                                              cuuint64_t, CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || function == nullptr || version > environment().version)
    return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult found{};
  *function = find_function(name, version, &found);
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}

}  // namespace spdld::fake_cuda

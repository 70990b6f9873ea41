// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/proc_address.h"

#include <cstring>

#include "cuda/functions.h"
#include "tests/fake_cuda/environment.h"

// Headers of CUDA 12 still mean the first form of it by this name.
#if CUDA_VERSION < 13000
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#endif

namespace spdld::fake_cuda {
namespace {

struct Function {
  const char* name;
  int version;
  void* address;
};

// Those that spdld calls, and those by which driver_facts asks more of the driver.
#define FAKE_CUDA_FUNCTION(name, version) {"cu" #name, version, reinterpret_cast<void*>(&cu##name)},
const Function kFunctions[] = {
    SPDLD_CUDA_FUNCTIONS(FAKE_CUDA_FUNCTION)       //
    FAKE_CUDA_FUNCTION(StreamBeginCapture, 10010)  //
    FAKE_CUDA_FUNCTION(StreamEndCapture, 10000)    //
    FAKE_CUDA_FUNCTION(GraphDestroy, 10000)        //
};
#undef FAKE_CUDA_FUNCTION

}  // namespace

void* find_function(const char* name, int version, CUdriverProcAddressQueryResult* status) {
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (environment().missing.count(name) != 0) return nullptr;
  for (const Function& function : kFunctions) {
    if (std::strcmp(function.name, name) != 0) continue;
    if (version < function.version || environment().version < function.version) {
      *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      return nullptr;
    }
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return function.address;
  }
  return nullptr;
}

}  // namespace spdld::fake_cuda

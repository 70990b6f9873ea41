// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>

namespace spdld::delivery::test {

// A function of the driver that fails once with CUDA_ERROR_UNKNOWN.
struct Fault {
  const char* function;
  const char* tried;  // as the error says it; null: nobody notices
  // What it is to undo stays: all that is asked is that the next use works.
  bool leaves = false;
};
inline std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << fault.function;
}

// Without cuMemHostUnregister: the fake ends processes that unmap what is still registered.
inline constexpr Fault kFaults[] = {
    {"cuDeviceGet", "which device it is"},
    {"cuDeviceGetName", "does not tell"},
    {"cuDeviceGetUuid", "its UUID"},
    {"cuDeviceTotalMem", "how much memory"},
    {"cuDeviceGetAttribute", "what it can do"},
    {"cuDevicePrimaryCtxRetain", "Fake GPU 0: beginning a context"},
    {"cuStreamCreateWithPriority", "Fake GPU 0: making a stream"},
    {"cuMemGetAllocationGranularity", "in which units memory is shared"},
    {"cuMemCreate", "taking memory that can be shared"},
    {"cuMemExportToShareableHandle", "exporting memory"},
    {"cuMemAddressReserve", "reserving addresses"},
    {"cuMemMap", "mapping memory"},
    {"cuMemSetAccess", "opening memory for copies"},
    {"cuMemHostRegister", nullptr},
    {"cuMemcpyHtoDAsync", "Fake GPU 0: copying a batch"},
    {"cuEventCreate", nullptr},
    {"cuEventRecord", "recording an event"},
    {"cuEventSynchronize", "copying a batch"},
    {"cuMemUnmap", nullptr, true},
    {"cuMemAddressFree", nullptr, true},
    {"cuMemRelease", nullptr, true},
    {"cuEventDestroy", nullptr, true},
    {"cuStreamDestroy", nullptr, true},
    {"cuCtxPopCurrent", nullptr, true},
    {"cuDevicePrimaryCtxRelease", nullptr, true}};

}  // namespace spdld::delivery::test

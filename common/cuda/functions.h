// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudaTypedefs.h>

// The functions of NVIDIA's driver that spdld calls, and nothing else of it: for each one its name
// without `cu`, and the CUDA version whose form of it is called.
#define SPDLD_CUDA_FUNCTIONS(FUNCTION)                  \
  FUNCTION(Init, 2000)                                  \
  FUNCTION(DriverGetVersion, 2020)                      \
  FUNCTION(GetErrorName, 6000)                          \
  FUNCTION(GetErrorString, 6000)                        \
  FUNCTION(DeviceGetCount, 2000)                        \
  FUNCTION(DeviceGet, 2000)                             \
  FUNCTION(DeviceGetName, 2000)                         \
  FUNCTION(DeviceGetUuid, 11040)                        \
  FUNCTION(DeviceGetAttribute, 2000)                    \
  FUNCTION(DeviceTotalMem, 3020)                        \
  FUNCTION(DevicePrimaryCtxRetain, 7000)                \
  FUNCTION(DevicePrimaryCtxRelease, 11000)              \
  FUNCTION(CtxPushCurrent, 4000)                        \
  FUNCTION(CtxPopCurrent, 4000)                         \
  FUNCTION(MemAlloc, 3020)                              \
  FUNCTION(MemFree, 3020)                               \
  FUNCTION(MemGetInfo, 3020)                            \
  FUNCTION(MemGetAllocationGranularity, 10020)          \
  FUNCTION(MemCreate, 10020)                            \
  FUNCTION(MemRelease, 10020)                           \
  FUNCTION(MemGetAllocationPropertiesFromHandle, 10020) \
  FUNCTION(MemExportToShareableHandle, 10020)           \
  FUNCTION(MemImportFromShareableHandle, 10020)         \
  FUNCTION(MemAddressReserve, 10020)                    \
  FUNCTION(MemAddressFree, 10020)                       \
  FUNCTION(MemMap, 10020)                               \
  FUNCTION(MemUnmap, 10020)                             \
  FUNCTION(MemSetAccess, 10020)                         \
  FUNCTION(MemHostAlloc, 2020)                          \
  FUNCTION(MemFreeHost, 2000)                           \
  FUNCTION(MemHostRegister, 6050)                       \
  FUNCTION(MemHostUnregister, 4000)                     \
  FUNCTION(MemcpyHtoDAsync, 3020)                       \
  FUNCTION(MemcpyDtoHAsync, 3020)                       \
  FUNCTION(StreamCreateWithPriority, 5050)              \
  FUNCTION(StreamDestroy, 4000)                         \
  FUNCTION(StreamQuery, 2000)                           \
  FUNCTION(StreamSynchronize, 2000)                     \
  FUNCTION(StreamWaitEvent, 3020)                       \
  FUNCTION(StreamIsCapturing, 10000)                    \
  FUNCTION(ThreadExchangeStreamCaptureMode, 10010)      \
  FUNCTION(EventCreate, 2000)                           \
  FUNCTION(EventDestroy, 4000)                          \
  FUNCTION(EventRecord, 2000)                           \
  FUNCTION(EventQuery, 2000)                            \
  FUNCTION(EventSynchronize, 2000)

namespace spdld::cuda {

struct Functions {
#define SPDLD_CUDA_MEMBER(name, version) PFN_cu##name##_v##version name = nullptr;
  SPDLD_CUDA_FUNCTIONS(SPDLD_CUDA_MEMBER)
#undef SPDLD_CUDA_MEMBER
};

}  // namespace spdld::cuda

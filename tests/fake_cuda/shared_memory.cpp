// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/shared_memory.h"

#include <vector>

namespace spdld::fake_cuda {

CUmemAllocationProp properties_of(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

CUmemAccessDesc access_of(CUmemAccess_flags flags, CUdevice device) {
  return {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
}

CUmemGenericAllocationHandle create(std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = properties_of();
  REQUIRE(cu().MemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
  return handle;
}

void release(CUmemGenericAllocationHandle handle) {
  REQUIRE(cu().MemRelease(handle) == CUDA_SUCCESS);
}

int export_descriptor(CUmemGenericAllocationHandle handle) {
  int descriptor = -1;
  REQUIRE(cu().MemExportToShareableHandle(
              &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
  return descriptor;
}

CUresult try_import(int descriptor, CUmemGenericAllocationHandle& handle) {
  return cu().MemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUmemGenericAllocationHandle import(int descriptor) {
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(try_import(descriptor, handle) == CUDA_SUCCESS);
  return handle;
}

CUdeviceptr reserve(std::size_t bytes) {
  CUdeviceptr address = 0;
  REQUIRE(cu().MemAddressReserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
  return address;
}

CUdeviceptr map(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const CUdeviceptr address = reserve(bytes);
  REQUIRE(cu().MemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
  return address;
}

CUresult grant(CUdeviceptr address, CUmemAccess_flags flags, std::size_t bytes) {
  const CUmemAccessDesc access = access_of(flags);
  return cu().MemSetAccess(address, bytes, &access, 1);
}

CUdeviceptr map_with(CUmemGenericAllocationHandle handle, CUmemAccess_flags flags,
                     std::size_t bytes) {
  const CUdeviceptr address = map(handle, bytes);
  REQUIRE(grant(address, flags, bytes) == CUDA_SUCCESS);
  return address;
}

void unmap(CUdeviceptr address, std::size_t bytes) {
  REQUIRE(cu().MemUnmap(address, bytes) == CUDA_SUCCESS);
  REQUIRE(cu().MemAddressFree(address, bytes) == CUDA_SUCCESS);
}

CUresult fill(CUdeviceptr to, int byte, std::size_t bytes, CUstream stream) {
  const std::vector<char> from(bytes, static_cast<char>(byte));
  return cu().MemcpyHtoDAsync(to, from.data(), bytes, stream);
}

char* content(CUdeviceptr address) { return static_cast<char*>(doors().peek(address)); }

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  REQUIRE(cu().MemGetInfo(&free, &total) == CUDA_SUCCESS);
  return free;
}

}  // namespace spdld::fake_cuda

// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/virtual_memory_facts.h"

namespace spdld::cuda {

CUmemAllocationProp properties_of(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

CUmemAccessDesc access_of(CUmemAccess_flags flags, CUdevice device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = flags;
  return access;
}

void VirtualMemoryFacts::SetUp() {
  DeviceFacts::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
      attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0)
    GTEST_SKIP() << "the device cannot share virtual memory by descriptors";
  const CUmemAllocationProp wanted = properties();
  ASSERT_EQ(cu().MemGetAllocationGranularity(&granule_, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  copies_ = stream();
}

void VirtualMemoryFacts::TearDown() {
  for (const CUdeviceptr address : mapped_)
    EXPECT_EQ(cu().MemUnmap(address, granule_), CUDA_SUCCESS);
  for (const auto& [address, bytes] : reserved_)
    EXPECT_EQ(cu().MemAddressFree(address, bytes), CUDA_SUCCESS);
  for (const auto handle : handles_) EXPECT_EQ(cu().MemRelease(handle), CUDA_SUCCESS);
  DeviceFacts::TearDown();
}

CUmemGenericAllocationHandle VirtualMemoryFacts::create(std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp wanted = properties();
  EXPECT_EQ(cu().MemCreate(&handle, bytes, &wanted, 0), CUDA_SUCCESS);
  handles_.push_back(handle);
  return handle;
}

void VirtualMemoryFacts::release(CUmemGenericAllocationHandle handle) {
  std::erase(handles_, handle);
  EXPECT_EQ(cu().MemRelease(handle), CUDA_SUCCESS);
}

CUdeviceptr VirtualMemoryFacts::reserve(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cu().MemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  reserved_.emplace_back(address, bytes);
  return address;
}

void VirtualMemoryFacts::map(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  EXPECT_EQ(cu().MemMap(address, granule_, 0, handle, 0), CUDA_SUCCESS);
  mapped_.push_back(address);
}

CUdeviceptr VirtualMemoryFacts::mapped(CUmemGenericAllocationHandle handle) {
  const CUdeviceptr address = reserve();
  map(address, handle);
  return address;
}

void VirtualMemoryFacts::unmap(CUdeviceptr address) {
  std::erase(mapped_, address);
  EXPECT_EQ(cu().MemUnmap(address, granule_), CUDA_SUCCESS);
}

CUresult VirtualMemoryFacts::grant(CUdeviceptr address, std::size_t bytes,
                                   CUmemAccess_flags flags) {
  const CUmemAccessDesc access = access_of(flags, device());
  return cu().MemSetAccess(address, bytes, &access, 1);
}

CUdeviceptr VirtualMemoryFacts::usable() {
  const CUdeviceptr address = mapped(create());
  EXPECT_EQ(grant(address, granule_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  return address;
}

void VirtualMemoryFacts::write(CUdeviceptr to, std::size_t bytes, int byte) {
  const std::vector<std::byte> from(bytes, static_cast<std::byte>(byte));
  EXPECT_EQ(cu().MemcpyHtoDAsync(to, from.data(), bytes, copies_), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamSynchronize(copies_), CUDA_SUCCESS);
}

int VirtualMemoryFacts::read(CUdeviceptr from, std::size_t bytes) {
  return filled_with(from, bytes, copies_);
}

}  // namespace spdld::cuda

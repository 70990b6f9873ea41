// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about memory of devices, and host memory that they read by themselves.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/facts.h"

namespace spdld::cuda {
namespace {

constexpr std::size_t kBytes = 64 << 10;

class MemoryFacts : public DeviceFacts {
 protected:
  // Read by a device, through a registration.
  int copied(const std::byte* from, std::size_t bytes = kBytes) {
    const CUstream copies = stream();
    const CUdeviceptr to = memory(bytes);
    EXPECT_EQ(cu().MemcpyHtoDAsync(to, from, bytes, copies), CUDA_SUCCESS);
    return filled_with(to, bytes, copies);
  }
  CUresult add(const Pages& pages, unsigned flags = 0, std::size_t bytes = kBytes) {
    return cu().MemHostRegister(pages.begin(), bytes, flags);
  }
  CUresult remove(const Pages& pages) { return cu().MemHostUnregister(pages.begin()); }
  bool registers_read_only() const {
    return attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0;
  }
};

TEST_F(MemoryFacts, AllocationsBeginAtMultiplesOf256) {
  for (const std::size_t bytes : {1u, 100u, 4097u}) EXPECT_EQ(memory(bytes) % 256, 0u);
}

TEST_F(MemoryFacts, AnAllocationOfNothingIsRefused) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cu().MemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryFacts, MoreThanADeviceHasIsRefused) {
  std::size_t total = 0;
  CUdeviceptr address = 0;
  ASSERT_EQ(cu().DeviceTotalMem(&total, device()), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAlloc(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(memory(kBytes), 0u) << "that harms nothing";
}

TEST_F(MemoryFacts, FreedMemoryCanBeAllocatedAgain) {
  std::size_t total = 0;
  ASSERT_EQ(cu().DeviceTotalMem(&total, device()), CUDA_SUCCESS);
  for (int round = 0; round < 8; ++round) {
    CUdeviceptr address = 0;
    ASSERT_EQ(cu().MemAlloc(&address, total / 4), CUDA_SUCCESS);
    ASSERT_EQ(cu().MemFree(address), CUDA_SUCCESS);
  }
}

TEST_F(MemoryFacts, WhatIsNoAllocationCannotBeFreed) {
  const CUdeviceptr address = memory(kBytes);
  EXPECT_EQ(cu().MemFree(address + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemcpyHtoDAsync(address, pinned(kBytes), kBytes, stream()), CUDA_SUCCESS)
      << "it is still there";
}

TEST_F(MemoryFacts, TheCpuCannotReadMemoryOfADevice) {
  EXPECT_DEATH(
      {
        const auto* const address = reinterpret_cast<const volatile char*>(memory(kBytes));
        static_cast<void>(*address);
        std::_Exit(0);
      },
      "");
}

TEST_F(MemoryFacts, FreeingWaitsForCopies) {
  const CUstream copies = stream();
  const CUevent done = event();
  CUdeviceptr address = 0;
  ASSERT_EQ(cu().MemAlloc(&address, kBytes), CUDA_SUCCESS);
  keep_busy(copies);
  EXPECT_EQ(cu().MemcpyHtoDAsync(address, pinned(kBytes), kBytes, copies), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventRecord(done, copies), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemFree(address), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventQuery(done), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, RegisteredMemoryCanBeCopied) {
  const Pages pages(kBytes);
  pages.fill(7);
  ASSERT_EQ(add(pages), CUDA_SUCCESS);
  EXPECT_EQ(copied(pages.begin()), 7);
  EXPECT_EQ(remove(pages), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, PartsOfPagesCanBeRegistered) {
  const Pages pages(kBytes);
  pages.fill(7);
  ASSERT_EQ(cu().MemHostRegister(pages.begin() + 64, 1000, 0), CUDA_SUCCESS);
  EXPECT_EQ(copied(pages.begin() + 64, 1000), 7);
  EXPECT_EQ(cu().MemHostUnregister(pages.begin() + 64), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, RegistrationsMayTouch) {
  const Pages pages(2 * kBytes);
  ASSERT_EQ(add(pages), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemHostRegister(pages.begin() + kBytes, kBytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(remove(pages), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemHostUnregister(pages.begin() + kBytes), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, RegistrationsMayNotOverlap) {
  const Pages pages(3 * kBytes);
  std::byte* const middle = pages.begin() + kBytes;
  ASSERT_EQ(cu().MemHostRegister(middle, kBytes, 0), CUDA_SUCCESS);
  for (const std::size_t from : {kBytes / 2, kBytes, kBytes + kBytes / 2}) {
    EXPECT_EQ(cu().MemHostRegister(pages.begin() + from, kBytes, 0),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        << from;
  }
  EXPECT_EQ(add(pages, 0, 3 * kBytes), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cu().MemHostUnregister(middle), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, WhatWasUnregisteredCanBeRegisteredAgain) {
  const Pages pages(kBytes);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(add(pages), CUDA_SUCCESS);
    ASSERT_EQ(remove(pages), CUDA_SUCCESS);
  }
}

TEST_F(MemoryFacts, RegisteringNothingIsRefused) {
  const Pages pages(kBytes);
  EXPECT_EQ(add(pages, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemHostRegister(nullptr, kBytes, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryFacts, UnknownRegistrationFlagsAreRefused) {
  const Pages pages(kBytes);
  EXPECT_EQ(add(pages, 1u << 30), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryFacts, AddressesWithoutMemoryCannotBeRegistered) {
  const Pages pages(2 * kBytes);
  ASSERT_EQ(::mprotect(pages.begin() + kBytes, kBytes, PROT_NONE), 0);
  EXPECT_EQ(add(pages, 0, 2 * kBytes), CUDA_ERROR_INVALID_VALUE) << "half of it has";
  EXPECT_EQ(cu().MemHostRegister(pages.begin() + kBytes, kBytes, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(::munmap(pages.begin() + kBytes, kBytes), 0);
  EXPECT_EQ(cu().MemHostRegister(pages.begin() + kBytes, kBytes, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryFacts, WhatIsNotRegisteredCannotBeUnregistered) {
  const Pages pages(kBytes);
  EXPECT_EQ(remove(pages), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(MemoryFacts, ReadOnlyMappingsNeedTheirFlag) {
  if (attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) != 0)
    GTEST_SKIP() << "the device uses the host's page tables";
  const int fd = sealed_memfd(kBytes, 5);
  const Pages pages(kBytes, PROT_READ, fd);
  EXPECT_EQ(add(pages), CUDA_ERROR_INVALID_VALUE);
  ::close(fd);
}

TEST_F(MemoryFacts, ReadOnlyMappingsOfSealedMemfdsCanBeRegistered) {
  if (!registers_read_only()) GTEST_SKIP() << "the device registers no read-only memory";
  const int fd = sealed_memfd(kBytes, 5);
  const Pages pages(kBytes, PROT_READ, fd);
  ::close(fd);
  ASSERT_EQ(add(pages, CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  EXPECT_EQ(copied(pages.begin()), 5);
  EXPECT_EQ(remove(pages), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, ReadOnlyRegistrationNeedsTheAttribute) {
  if (registers_read_only()) GTEST_SKIP() << "the device has it";
  const Pages pages(kBytes);
  EXPECT_EQ(add(pages, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(MemoryFacts, RegistrationNeedsTheAttribute) {
  if (attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) != 0)
    GTEST_SKIP() << "the device has it";
  const Pages pages(kBytes);
  EXPECT_EQ(add(pages), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(MemoryFacts, WritesThroughAnotherMappingAreCopied) {
  if (!registers_read_only()) GTEST_SKIP() << "the device registers no read-only memory";
  const int fd = ::memfd_create("facts", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  const Pages writer(kBytes, PROT_READ | PROT_WRITE, fd);
  const Pages reader(kBytes, PROT_READ, fd);
  ::close(fd);
  writer.fill(1);
  ASSERT_EQ(add(reader, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
  EXPECT_EQ(copied(reader.begin()), 1);
  writer.fill(2);
  EXPECT_EQ(copied(reader.begin()), 2) << "it is the same pages still";
  EXPECT_EQ(remove(reader), CUDA_SUCCESS);
}

TEST_F(MemoryFacts, OtherThreadsCopyFromARegistration) {
  const Pages pages(kBytes);
  pages.fill(9);
  ASSERT_EQ(add(pages), CUDA_SUCCESS);
  in_thread([&] { EXPECT_EQ(copied(pages.begin()), 9); });
  in_thread([&] { EXPECT_EQ(remove(pages), CUDA_SUCCESS); });
}

TEST_F(MemoryFacts, AllocatedHostMemoryIsNeitherRegisteredNorUnregistered) {
  std::byte* const address = pinned(kBytes);
  EXPECT_EQ(cu().MemHostRegister(address, kBytes, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemHostUnregister(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryFacts, HostAllocationsOfUnknownKindsAreRefused) {
  void* address = nullptr;
  EXPECT_EQ(cu().MemHostAlloc(&address, kBytes, 1u << 30), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryFacts, OnlyAllocatedHostMemoryCanBeFreed) {
  const Pages pages(kBytes);
  EXPECT_EQ(cu().MemFreeHost(pages.begin()), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(add(pages), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemFreeHost(pages.begin()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(remove(pages), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spdld::cuda

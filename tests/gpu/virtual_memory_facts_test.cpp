// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about physical memory of a device, addresses that are reserved, and mappings
// of the one to the other, in one process.
#include "tests/gpu/virtual_memory_facts.h"

#include "tests/gpu/new_process.h"

namespace spdld::cuda {
namespace {

constexpr auto kRead = CU_MEM_ACCESS_FLAGS_PROT_READ;

TEST_F(VirtualMemoryFacts, TheRecommendedGranularityIsAMultipleOfTheLeast) {
  const CUmemAllocationProp wanted = properties();
  std::size_t recommended = 0;
  EXPECT_EQ(
      cu().MemGetAllocationGranularity(&recommended, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      CUDA_SUCCESS);
  ASSERT_GT(granule(), 0u);
  EXPECT_EQ(granule() & (granule() - 1), 0u);
  EXPECT_EQ(recommended % granule(), 0u);
  record("least granularity in bytes", std::to_string(granule()));
}

TEST_F(VirtualMemoryFacts, TheGranularityOfNothingIsRefused) {
  const CUmemAllocationProp wanted = properties();
  std::size_t bytes = 0;
  EXPECT_EQ(cu().MemGetAllocationGranularity(&bytes, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemGetAllocationGranularity(nullptr, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, MemoryIsCreatedInWholeGranules) {
  const CUmemAllocationProp wanted = properties();
  CUmemGenericAllocationHandle handle = 0;
  for (const std::size_t bytes : {std::size_t{0}, granule() / 2, granule() + 1}) {
    EXPECT_EQ(cu().MemCreate(&handle, bytes, &wanted, 0), CUDA_ERROR_INVALID_VALUE) << bytes;
  }
  EXPECT_NE(create(3 * granule()), 0u);
}

TEST_F(VirtualMemoryFacts, PropertiesOfNoMemoryAreRefused) {
  CUmemGenericAllocationHandle handle = 0;
  const auto created = [&](auto change) {
    CUmemAllocationProp wanted = properties();
    change(wanted);
    return cu().MemCreate(&handle, granule(), &wanted, 0);
  };
  EXPECT_EQ(created([](auto& wanted) { wanted.type = CU_MEM_ALLOCATION_TYPE_INVALID; }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(created([](auto& wanted) { wanted.location.type = CU_MEM_LOCATION_TYPE_INVALID; }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(created([](auto& wanted) { wanted.location.id = driver().devices; }),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_NE(created([](auto& wanted) { wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32; }),
            CUDA_SUCCESS);
  const CUmemAllocationProp wanted = properties();
  EXPECT_EQ(cu().MemCreate(&handle, granule(), &wanted, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemCreate(&handle, granule(), nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, MoreThanADeviceHasCannotBeCreated) {
  const CUmemAllocationProp wanted = properties();
  CUmemGenericAllocationHandle handle = 0;
  std::size_t total = 0;
  ASSERT_EQ(cu().DeviceTotalMem(&total, device()), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemCreate(&handle, (total / granule() + 1) * granule(), &wanted, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VirtualMemoryFacts, PropertiesAreToldAsTheyWereWanted) {
  CUmemAllocationProp told{};
  EXPECT_EQ(cu().MemGetAllocationPropertiesFromHandle(&told, create()), CUDA_SUCCESS);
  EXPECT_EQ(told.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(told.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(told.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(told.location.id, device());
}

TEST_F(VirtualMemoryFacts, FreeMemoryIsLessByWhatIsCreated) {
  const std::size_t bytes = 16 * granule();
  const auto free_bytes = [&] {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cu().MemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_LE(free, total);
    return free;
  };
  release(create(bytes));  // the driver may make tables for the first one
  const std::size_t before = free_bytes();
  const CUmemGenericAllocationHandle handle = create(bytes);
  EXPECT_LE(free_bytes(), before - bytes);
  release(handle);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(VirtualMemoryFacts, ReservationsBeginAtGranules) {
  EXPECT_EQ(reserve() % granule(), 0u);
  CUdeviceptr address = 0;
  const std::size_t alignment = 8 * granule();
  for (int round = 0; round < 4; ++round) {
    ASSERT_EQ(cu().MemAddressReserve(&address, granule(), alignment, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(address % alignment, 0u);
    EXPECT_EQ(cu().MemAddressFree(address, granule()), CUDA_SUCCESS);
    reserve();
  }
}

TEST_F(VirtualMemoryFacts, ReservationsOfNoSuchKindAreRefused) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cu().MemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemAddressReserve(&address, 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemAddressReserve(&address, granule(), 3 * granule(), 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemAddressReserve(&address, granule(), 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemAddressReserve(nullptr, granule(), 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const CUresult of_page = cu().MemAddressReserve(&address, page, 0, 0, 0);
  record("reserving one page of the host", of_page);
  if (of_page == CUDA_SUCCESS) {
    EXPECT_EQ(cu().MemAddressFree(address, page), CUDA_SUCCESS);
  }
}

TEST_F(VirtualMemoryFacts, ReservationsDoNotOverlap) {
  const CUdeviceptr first = reserve(4 * granule());
  CUdeviceptr second = 0;
  ASSERT_EQ(cu().MemAddressReserve(&second, 4 * granule(), 0, first, 0), CUDA_SUCCESS)
      << "an address that is taken is but a hint";
  EXPECT_TRUE(second >= first + 4 * granule() || second + 4 * granule() <= first);
  EXPECT_EQ(cu().MemAddressFree(second, 4 * granule()), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryFacts, TheCpuCannotReadReservedOrMappedAddresses) {
  const auto read_at = [](CUdeviceptr address) {
    static_cast<void>(*reinterpret_cast<const volatile char*>(address));
    std::_Exit(0);
  };
  EXPECT_DEATH(read_at(reserve()), "");
  EXPECT_DEATH(read_at(usable()), "");
}

TEST_F(VirtualMemoryFacts, OnlyWholeReservationsCanBeFreed) {
  const CUdeviceptr address = reserve(2 * granule());
  EXPECT_EQ(cu().MemAddressFree(address, granule()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemAddressFree(address + granule(), granule()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemAddressFree(address, 3 * granule()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, AReservationIsFreedOnce) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cu().MemAddressReserve(&address, granule(), 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAddressFree(address, granule()), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAddressFree(address, granule()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, AReservationThatIsMappedCannotBeFreed) {
  const CUdeviceptr address = usable();
  EXPECT_EQ(cu().MemAddressFree(address, granule()), CUDA_ERROR_INVALID_VALUE);
  write(address, granule(), 3);
  EXPECT_EQ(read(address, granule()), 3) << "it is still there";
}

TEST_F(VirtualMemoryFacts, AMapNeedsReservedAddresses) {
  EXPECT_EQ(cu().MemMap(reserve(), 2 * granule(), 0, create(2 * granule()), 0),
            CUDA_ERROR_INVALID_VALUE)
      << "the second half is not reserved";
  const CUmemGenericAllocationHandle handle = create();
  CUdeviceptr freed = 0;
  ASSERT_EQ(cu().MemAddressReserve(&freed, granule(), 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAddressFree(freed, granule()), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemMap(freed, granule(), 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemMap(memory(granule()), granule(), 0, handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "cuMemAlloc's are not";
}

TEST_F(VirtualMemoryFacts, AMapIsOfAllOfItsMemory) {
  const CUmemGenericAllocationHandle handle = create(2 * granule());
  const CUdeviceptr address = reserve(4 * granule());
  EXPECT_EQ(cu().MemMap(address, granule(), 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemMap(address, granule(), granule(), handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemMap(address, granule(), granule() / 2, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemMap(address, granule() / 2, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemMap(address, 2 * granule(), 0, create(), 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemMap(address, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemMap(address, granule(), 0, handle, 1), CUDA_ERROR_INVALID_VALUE)
      << "there are no flags";
  EXPECT_EQ(cu().MemMap(address, 2 * granule(), granule(), handle, 0), CUDA_ERROR_NOT_SUPPORTED)
      << "it would end behind the memory";
}

TEST_F(VirtualMemoryFacts, MapsBeginAtGranules) {
  const CUdeviceptr address = reserve(2 * granule());
  EXPECT_EQ(cu().MemMap(address + granule() / 2, granule(), 0, create(), 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, MappedAddressesCannotBeMappedAgain) {
  const CUmemGenericAllocationHandle one = create(), two = create(2 * granule());
  const CUdeviceptr address = reserve(4 * granule());
  ASSERT_EQ(cu().MemMap(address + granule(), 2 * granule(), 0, two, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemMap(address + granule(), 2 * granule(), 0, two, 0), CUDA_ERROR_INVALID_VALUE);
  const auto map_over = [&](std::size_t granules, CUmemGenericAllocationHandle handle,
                            std::size_t bytes) {
    return cu().MemMap(address + granules * granule(), bytes, 0, handle, 0);
  };
  EXPECT_EQ(map_over(2, two, 2 * granule()), CUDA_ERROR_INVALID_VALUE) << "over its end";
  EXPECT_EQ(map_over(0, two, 2 * granule()), CUDA_ERROR_INVALID_VALUE) << "over its beginning";
  EXPECT_EQ(map_over(1, one, granule()), CUDA_ERROR_INVALID_VALUE) << "over its first half";
  EXPECT_EQ(map_over(2, one, granule()), CUDA_ERROR_INVALID_VALUE) << "over its second half";
  EXPECT_EQ(cu().MemUnmap(address + granule(), 2 * granule()), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryFacts, MemoryThatIsMappedTwiceIsTheSame) {
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr one = mapped(handle), two = mapped(handle);
  ASSERT_EQ(grant(one, granule(), kReadWrite), CUDA_SUCCESS);
  ASSERT_EQ(grant(two, granule(), kReadWrite), CUDA_SUCCESS);
  write(one, granule(), 5);
  EXPECT_EQ(read(two, granule()), 5);
}

TEST_F(VirtualMemoryFacts, AMappingKeepsItsMemoryWithoutAHandle) {
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr address = mapped(handle);
  ASSERT_EQ(grant(address, granule(), kReadWrite), CUDA_SUCCESS);
  write(address, granule(), 6);
  release(handle);
  EXPECT_EQ(read(address, granule()), 6);
}

TEST_F(VirtualMemoryFacts, OnlyWholeMappingsCanBeUnmapped) {
  const CUmemGenericAllocationHandle handle = create(2 * granule());
  const CUdeviceptr address = reserve(4 * granule());
  ASSERT_EQ(cu().MemMap(address, 2 * granule(), 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemUnmap(address, granule()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemUnmap(address + granule(), granule()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemUnmap(address + granule(), 3 * granule()), CUDA_ERROR_INVALID_VALUE)
      << "half of it, and what follows";
  EXPECT_EQ(cu().MemUnmap(address, 2 * granule()), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryFacts, ReservedAddressesCanBeUnmappedMappedOrNot) {
  const CUdeviceptr address = reserve(4 * granule());
  ASSERT_EQ(cu().MemMap(address, 2 * granule(), 0, create(2 * granule()), 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemUnmap(address, 4 * granule()), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemUnmap(address, 2 * granule()), CUDA_SUCCESS) << "none of it is mapped";
  CUdeviceptr freed = 0;
  ASSERT_EQ(cu().MemAddressReserve(&freed, granule(), 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAddressFree(freed, granule()), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemUnmap(freed, granule()), CUDA_ERROR_INVALID_VALUE) << "no longer reserved";
}

TEST_F(VirtualMemoryFacts, NeighboursAreUnmappedTogether) {
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr address = reserve(2 * granule());
  ASSERT_EQ(cu().MemMap(address, granule(), 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().MemMap(address + granule(), granule(), 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemUnmap(address, 2 * granule()), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryFacts, MemoryKeepsItsBytesWhileItIsNotMapped) {
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr first = mapped(handle);
  ASSERT_EQ(grant(first, granule(), kReadWrite), CUDA_SUCCESS);
  write(first, granule(), 7);
  unmap(first);
  const CUdeviceptr second = mapped(handle);
  ASSERT_EQ(grant(second, granule(), kReadWrite), CUDA_SUCCESS);
  EXPECT_EQ(read(second, granule()), 7);
}

TEST_F(VirtualMemoryFacts, AccessIsGrantedToMappedAddresses) {
  const CUdeviceptr address = reserve(2 * granule());
  EXPECT_EQ(grant(address, granule(), kReadWrite), CUDA_ERROR_INVALID_VALUE);
  map(address, create());
  EXPECT_EQ(grant(address, 2 * granule(), kReadWrite), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(grant(address, granule(), kReadWrite), CUDA_SUCCESS);
  EXPECT_EQ(grant(memory(granule()), granule(), kReadWrite), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, AccessOfNoSuchKindIsRefused) {
  const CUdeviceptr address = mapped(create());
  const CUmemAccessDesc nowhere = access_of(kReadWrite, driver().devices);
  EXPECT_EQ(cu().MemSetAccess(address, granule(), &nowhere, 1), CUDA_ERROR_INVALID_VALUE);
  const CUmemAccessDesc good = access_of(kReadWrite, device());
  EXPECT_EQ(cu().MemSetAccess(address, granule(), nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemSetAccess(address, granule(), &good, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(grant(address, granule(), static_cast<CUmemAccess_flags>(2)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, NeighboursAreGrantedAccessAndCopiedTogether) {
  const CUdeviceptr address = reserve(2 * granule());
  map(address, create());
  map(address + granule(), create());
  ASSERT_EQ(grant(address, 2 * granule(), kReadWrite), CUDA_SUCCESS);
  write(address, 2 * granule(), 8);
  EXPECT_EQ(read(address, 2 * granule()), 8);
}

TEST_F(VirtualMemoryFacts, WhetherAPartOfAMappingIsGrantedAccess) {
  const CUdeviceptr address = reserve(2 * granule());
  ASSERT_EQ(cu().MemMap(address, 2 * granule(), 0, create(2 * granule()), 0), CUDA_SUCCESS);
  record("access to half of a mapping", grant(address, granule(), kReadWrite));
  EXPECT_EQ(cu().MemUnmap(address, 2 * granule()), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryFacts, WhetherAnotherDeviceIsGrantedAccess) {
  if (driver().devices < 2) GTEST_SKIP() << "there is one device";
  const CUmemAccessDesc other = access_of(kReadWrite, 1);
  record("access of a second device", cu().MemSetAccess(mapped(create()), granule(), &other, 1));
}

TEST_F(VirtualMemoryFacts, CopiesReachNothingBeyondAMapping) {
  const CUdeviceptr address = reserve(2 * granule());
  map(address, create());
  ASSERT_EQ(grant(address, granule(), kReadWrite), CUDA_SUCCESS);
  std::byte* const from = pinned(2 * granule());
  EXPECT_EQ(cu().MemcpyHtoDAsync(address, from, 2 * granule(), stream()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryFacts, RegisteredMemoryIsCopiedToAMapping) {
  const Pages pages(granule());
  pages.fill(9);
  ASSERT_EQ(cu().MemHostRegister(pages.begin(), granule(), 0), CUDA_SUCCESS);
  const CUdeviceptr address = usable();
  const CUstream copies = stream();
  EXPECT_EQ(cu().MemcpyHtoDAsync(address, pages.begin(), granule(), copies), CUDA_SUCCESS);
  EXPECT_EQ(filled_with(address, granule(), copies), 9);
  EXPECT_EQ(cu().MemHostUnregister(pages.begin()), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryFacts, WhetherReadOnlyAccessIsGranted) {
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr writable = mapped(handle), readable = mapped(handle);
  ASSERT_EQ(grant(writable, granule(), kReadWrite), CUDA_SUCCESS);
  const CUresult granted = grant(readable, granule(), kRead);
  record("read-only access to memory of a device", granted);
  if (granted != CUDA_SUCCESS) {
    EXPECT_EQ(granted, CUDA_ERROR_NOT_SUPPORTED);
    return;
  }
  write(writable, granule(), 10);
  EXPECT_EQ(read(readable, granule()), 10);
}

// In processes of their own, since a driver might find the error late, and break the context.
class AccessFacts : public VirtualMemoryFacts {
 protected:
  void SetUp() override {
    VirtualMemoryFacts::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
      GTEST_SKIP() << "the device lets one process in";
  }
  // Copies to memory that is mapped with such access; with none: before any was granted, and anew
  // where it was granted to what was mapped before.
  void copy_with(CUmemAccess_flags flags) {
    const CUdeviceptr address = mapped(create());
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      REQUIRE(cu().MemcpyHtoDAsync(address, from_.data(), 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
      REQUIRE(grant(address, granule(), kReadWrite) == CUDA_SUCCESS);
      unmap(address);
      map(address, create());
    } else if (grant(address, granule(), flags) != CUDA_SUCCESS) {
      return;
    }
    REQUIRE(cu().MemcpyHtoDAsync(address, from_.data(), 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().StreamSynchronize(nullptr) == CUDA_SUCCESS);
  }
  const std::vector<std::byte> from_{std::byte{1}};
};

TEST_F(AccessFacts, MappedMemoryCannotBeCopiedToBeforeAccessIsGranted) {
  HOLDS_IN_A_NEW_PROCESS(copy_with(CU_MEM_ACCESS_FLAGS_PROT_NONE));
}

TEST_F(AccessFacts, ReadOnlyMemoryCannotBeCopiedTo) { HOLDS_IN_A_NEW_PROCESS(copy_with(kRead)); }

TEST_F(DeviceFacts, VirtualMemoryNeedsTheAttribute) {
  if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0)
    GTEST_SKIP() << "the device has it";
  const CUmemAllocationProp wanted = properties_of(device());
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cu().MemGetAllocationGranularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemCreate(&handle, 2 << 20, &wanted, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu().MemAddressReserve(&address, 2 << 20, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DeviceFacts, ExportNeedsTheAttribute) {
  if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 ||
      attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0)
    GTEST_SKIP() << "the device has it, or no virtual memory";
  CUmemAllocationProp wanted = properties_of(device());
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cu().MemCreate(&handle, 2 << 20, &wanted, 0), CUDA_ERROR_NOT_SUPPORTED);
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  EXPECT_EQ(cu().MemCreate(&handle, 2 << 20, &wanted, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemRelease(handle), CUDA_SUCCESS);
}

// Whether each function can be called in some state.
class StateFacts : public VirtualMemoryFacts {
 protected:
  // Hands each function to `ask(name, call)`, which has it called until it succeeds.
  template <typename Ask>
  void ask_all(Ask ask) {
    const CUmemAllocationProp wanted = properties();
    const CUmemAccessDesc access = access_of(kReadWrite, device());
    CUmemAllocationProp told{};
    CUmemGenericAllocationHandle handle = 0, imported = 0;
    CUdeviceptr address = 0;
    std::size_t bytes = 0, more_bytes = 0;
    int descriptor = -1;
    ask("cuMemGetInfo", [&] { return cu().MemGetInfo(&bytes, &more_bytes); });
    ask("cuMemGetAllocationGranularity", [&] {
      return cu().MemGetAllocationGranularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    });
    ask("cuMemCreate", [&] { return cu().MemCreate(&handle, granule(), &wanted, 0); });
    ask("cuMemGetAllocationPropertiesFromHandle",
        [&] { return cu().MemGetAllocationPropertiesFromHandle(&told, handle); });
    ask("cuMemExportToShareableHandle", [&] { return export_to(descriptor, handle); });
    ask("cuMemImportFromShareableHandle", [&] { return import_from(descriptor, imported); });
    ask("cuMemAddressReserve",
        [&] { return cu().MemAddressReserve(&address, granule(), 0, 0, 0); });
    ask("cuMemMap", [&] { return cu().MemMap(address, granule(), 0, handle, 0); });
    ask("cuMemSetAccess", [&] { return cu().MemSetAccess(address, granule(), &access, 1); });
    ask("cuMemUnmap", [&] { return cu().MemUnmap(address, granule()); });
    ask("cuMemAddressFree", [&] { return cu().MemAddressFree(address, granule()); });
    ask("cuMemRelease", [&] { return cu().MemRelease(handle); });
    EXPECT_EQ(cu().MemRelease(imported), CUDA_SUCCESS);
    EXPECT_EQ(::close(descriptor), 0);
  }
};

TEST_F(StateFacts, WhichFunctionsNeedACurrentContext) {
  ask_all([&](const char* name, const auto& call) {
    CUresult without{};
    elsewhere([&] { without = call(); });
    record(std::string(name) + " without a context", without);
    if (without == CUDA_SUCCESS) return;
    EXPECT_EQ(without, CUDA_ERROR_INVALID_CONTEXT) << name;
    EXPECT_EQ(call(), CUDA_SUCCESS) << name;
  });
}

TEST_F(StateFacts, WhichFunctionsMayBeCalledWhileCapturing) {
  const CUstream captured = stream();
  ask_all([&](const char* name, const auto& call) {
    CUgraph graph = nullptr;
    ASSERT_EQ(more().StreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    const CUresult meanwhile = call();
    const CUresult ended = more().StreamEndCapture(captured, &graph);
    record(std::string(name) + " while capturing", meanwhile);
    if (graph != nullptr) {
      EXPECT_EQ(more().GraphDestroy(graph), CUDA_SUCCESS);
    }
    if (meanwhile == CUDA_SUCCESS) {
      EXPECT_EQ(ended, CUDA_SUCCESS) << name;
      return;
    }
    EXPECT_EQ(meanwhile, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << name;
    EXPECT_EQ(ended, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << name;
    EXPECT_EQ(call(), CUDA_SUCCESS) << name;
  });
}

TEST_F(StateFacts, ARelaxedThreadMayCallAllDuringACapture) {
  const CUstream captured = stream();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUgraph graph = nullptr;
  ASSERT_EQ(more().StreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(more().ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  ask_all([&](const char* name, const auto& call) { EXPECT_EQ(call(), CUDA_SUCCESS) << name; });
  EXPECT_EQ(more().ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(more().StreamEndCapture(captured, &graph), CUDA_SUCCESS);
  EXPECT_EQ(more().GraphDestroy(graph), CUDA_SUCCESS);
}

// The last release of a context, which other tests hold on to until their end.
TEST_F(DriverFacts, MappingsOutliveTheirContext) {
  if (!driver()) GTEST_SKIP() << driver().why_not;
  const Functions& cu = *driver().functions;
  int supported = 0;
  ASSERT_EQ(
      cu.DeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
      CUDA_SUCCESS);
  if (supported == 0) GTEST_SKIP() << "the device has no virtual memory";
  const auto enter = [&] {
    CUcontext context = nullptr;
    ASSERT_EQ(cu.DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu.CtxPushCurrent(context), CUDA_SUCCESS);
  };
  const auto leave = [&] {
    ASSERT_EQ(cu.CtxPopCurrent(nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cu.DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  };
  const auto read = function_of<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync", 3020);
  if (read == nullptr) GTEST_SKIP() << "the driver is older than CUDA 12";
  const CUmemAllocationProp wanted = properties_of(0);
  const CUmemAccessDesc access = access_of(kReadWrite, 0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  char byte = 11;
  enter();
  ASSERT_EQ(cu.MemGetAllocationGranularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  ASSERT_EQ(cu.MemCreate(&handle, bytes, &wanted, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemSetAccess(address, bytes, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemcpyHtoDAsync(address, &byte, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamSynchronize(nullptr), CUDA_SUCCESS);
  leave();
  enter();
  byte = 0;
  EXPECT_EQ(read(&byte, address, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(byte, 11);
  EXPECT_EQ(cu.MemUnmap(address, bytes), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemAddressFree(address, bytes), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemRelease(handle), CUDA_SUCCESS);
  leave();
}

}  // namespace
}  // namespace spdld::cuda

// SPDX-License-Identifier: Apache-2.0
// Addresses and mappings of the fake in one process: what a CPU and kernels may do there, and where
// the fake is stricter than the documentation of the driver, or ends the process.
#include <signal.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/shared_memory.h"

namespace spdld::fake_cuda {
namespace {

// Also where a sanitizer reports the access.
MATCHER(Segfaults, "") {
  return arg.code == -SIGSEGV || arg.said.find("SEGV") != std::string::npos;
}

Ended with_device(const std::function<void()>& body, const std::string& setting = "X=") {
  return in_child({setting}, [&] {
    use_device();
    body();
  });
}

void launch_and_wait(void (*kernel)(void*), void* argument) {
  const CUstream stream = new_stream();
  REQUIRE(doors().launch(stream, kernel, argument) == CUDA_SUCCESS);
  REQUIRE(cu().StreamSynchronize(stream) == CUDA_SUCCESS);
}

void read_byte(void* content) { static_cast<void>(*static_cast<volatile char*>(content)); }
void write_byte(void* content) { *static_cast<volatile char*>(content) = 1; }

TEST(FakeCudaAddresses, TheCpuCannotTouchThem) {
  EXPECT_THAT(with_device([] { read_byte(reinterpret_cast<void*>(reserve())); }), Segfaults());
  EXPECT_THAT(
      with_device([] {
        read_byte(reinterpret_cast<void*>(map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)));
      }),
      Segfaults());
}

TEST(FakeCudaAddresses, AreOfOneRangeForAllKindsOfMemory) {
  EXPECT_THAT(with_device([] {
                CUdeviceptr last = new_memory(1);
                for (int round = 0; round < 4; ++round) {
                  const CUdeviceptr reserved = reserve(), allocated = new_memory(1);
                  REQUIRE(reserved > last && reserved % kGranuleBytes == 0);
                  REQUIRE(allocated >= reserved + kGranuleBytes);
                  last = allocated;
                }
              }),
              Succeeds());
}

TEST(FakeCudaAddresses, RunOutAndComeBack) {
  EXPECT_THAT(with_device([] {
                const std::size_t half = std::size_t{32} << 30;
                const CUdeviceptr first = reserve(half);
                CUdeviceptr second = 0;
                REQUIRE(cu().MemAddressReserve(&second, half + kGranuleBytes, 0, 0, 0) ==
                        CUDA_ERROR_OUT_OF_MEMORY);
                REQUIRE(cu().MemAddressFree(first, half) == CUDA_SUCCESS);
                reserve(half + kGranuleBytes);
                REQUIRE(own_counts().reservations == 1);
              }),
              Succeeds());
}

TEST(FakeCudaMappings, AreCounted) {
  EXPECT_THAT(
      with_device([] {
        const CUmemGenericAllocationHandle handle = create();
        const CUdeviceptr address = map(handle);
        const FakeCudaCounts counts = own_counts();
        REQUIRE(counts.handles == 1 && counts.reservations == 1);
        REQUIRE(counts.mapped_ranges == 1 && counts.shared_bytes == kGranuleBytes);
        unmap(address);
        release(handle);
        const FakeCudaCounts after = own_counts();
        REQUIRE(after.handles + after.reservations + after.mapped_ranges + after.shared_bytes == 0);
      }),
      Succeeds());
}

TEST(FakeCudaMappings, AreCountedOneByOneWhenOneCallUnmapsThem) {
  EXPECT_THAT(with_device([] {
                const CUdeviceptr address = reserve(4 * kGranuleBytes);
                const CUdeviceptr second = address + kGranuleBytes;
                REQUIRE(cu().MemMap(address, kGranuleBytes, 0, create(), 0) == CUDA_SUCCESS);
                REQUIRE(cu().MemMap(second, 2 * kGranuleBytes, 0, create(2 * kGranuleBytes), 0) ==
                        CUDA_SUCCESS);
                REQUIRE(cu().MemUnmap(address, 2 * kGranuleBytes) == CUDA_ERROR_INVALID_VALUE);
                REQUIRE(own_counts().mapped_ranges == 2);
                REQUIRE(cu().MemUnmap(address, 4 * kGranuleBytes) == CUDA_SUCCESS);
                REQUIRE(own_counts().mapped_ranges == 0);
                REQUIRE(cu().MemUnmap(address, 4 * kGranuleBytes) == CUDA_SUCCESS);
                REQUIRE(own_counts().mapped_ranges == 0);
                REQUIRE(cu().MemUnmap(address, 5 * kGranuleBytes) == CUDA_ERROR_INVALID_VALUE);
              }),
              Succeeds());
}

TEST(FakeCudaMappings, HaveContentOnceAccessIsGranted) {
  EXPECT_THAT(with_device([] {
                const CUdeviceptr address = map(create());
                REQUIRE(content(address) == nullptr);
                REQUIRE(fill(address, 1, 1, new_stream()) == CUDA_ERROR_INVALID_VALUE);
                REQUIRE(grant(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS);
                REQUIRE(content(address) != nullptr);
                REQUIRE(content(address + 9) == content(address) + 9);
                REQUIRE(grant(address, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS);
                REQUIRE(content(address) == nullptr);
                unmap(address);
                REQUIRE(content(address) == nullptr);
              }),
              Succeeds());
}

TEST(FakeCudaMappings, ThatAreNeighboursAreOneContent) {
  EXPECT_THAT(with_device([] {
                const CUdeviceptr address = reserve(2 * kGranuleBytes);
                const CUdeviceptr second = address + kGranuleBytes;
                REQUIRE(cu().MemMap(address, kGranuleBytes, 0, create(), 0) == CUDA_SUCCESS);
                REQUIRE(cu().MemMap(second, kGranuleBytes, 0, create(), 0) == CUDA_SUCCESS);
                REQUIRE(grant(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 2 * kGranuleBytes) ==
                        CUDA_SUCCESS);
                const CUstream stream = new_stream();
                REQUIRE(fill(second - 1, 3, 2, stream) == CUDA_SUCCESS);
                REQUIRE(cu().StreamSynchronize(stream) == CUDA_SUCCESS);
                REQUIRE(content(second)[-1] == 3 && content(second)[0] == 3);
                REQUIRE(grant(second, CU_MEM_ACCESS_FLAGS_PROT_READ) == CUDA_SUCCESS);
                REQUIRE(fill(second - 1, 3, 2, stream) == CUDA_ERROR_INVALID_VALUE);
              }),
              Succeeds());
}

TEST(FakeCudaMappings, ThatAreReadOnlyKillKernelsThatWrite) {
  EXPECT_THAT(with_device([] {
                const CUdeviceptr address = map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READ);
                launch_and_wait(read_byte, content(address));
                REQUIRE(fill(address, 1, 1, new_stream()) == CUDA_ERROR_INVALID_VALUE);
              }),
              Succeeds());
  EXPECT_THAT(with_device([] {
                launch_and_wait(write_byte,
                                content(map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READ)));
              }),
              Segfaults());
}

TEST(FakeCudaMappings, ThatAreGoneKillKernels) {
  EXPECT_THAT(with_device([] {
                const CUmemGenericAllocationHandle handle = create();
                const CUdeviceptr address = map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                char* const before = content(address);
                unmap(address);
                // What is mapped later is not found there.
                map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                launch_and_wait(read_byte, before);
              }),
              Segfaults());
}

TEST(FakeCudaMappings, ReadOnlyAccessCanBeUnsupported) {
  EXPECT_THAT(
      with_device(
          [] {
            const CUdeviceptr address = map(create());
            REQUIRE(grant(address, CU_MEM_ACCESS_FLAGS_PROT_READ) == CUDA_ERROR_NOT_SUPPORTED);
            REQUIRE(grant(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS);
          },
          "FAKE_CUDA_READ_ONLY_ACCESS=0"),
      Succeeds());
}

// Has a copy pending on memory that is mapped at an address.
void copy_pending(CUdeviceptr address, bool to_device) {
  static Gate gate;
  const CUstream stream = new_stream();
  gate.hold(stream);
  void* host = nullptr;
  REQUIRE(cu().MemHostAlloc(&host, kGranuleBytes, 0) == CUDA_SUCCESS);
  if (to_device) {
    REQUIRE(cu().MemcpyHtoDAsync(address, host, kGranuleBytes, stream) == CUDA_SUCCESS);
  } else {
    const auto copy =
        reinterpret_cast<PFN_cuMemcpyDtoHAsync_v3020>(find_function("cuMemcpyDtoHAsync", 3020));
    REQUIRE(copy(host, address, kGranuleBytes, stream) == CUDA_SUCCESS);
  }
}

TEST(FakeCudaStrictness, UnmappingMemoryThatIsCopiedEndsTheProcess) {
  for (const bool to_device : {true, false}) {
    EXPECT_THAT(with_device([&] {
                  const CUdeviceptr address =
                      map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                  copy_pending(address, to_device);
                  cu().MemUnmap(address, kGranuleBytes);
                }),
                AbortsSaying("was unmapped before a copy was done with it"));
  }
}

TEST(FakeCudaStrictness, UnmappingMemoryThatPageableMemoryIsCopiedToEndsTheProcess) {
  EXPECT_THAT(with_device([&] {
                const CUdeviceptr address = map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                const CUstream stream = new_stream();
                static Gate gate;
                gate.hold(stream);
                REQUIRE(fill(address, 1, 1, stream) == CUDA_SUCCESS);
                cu().MemUnmap(address, kGranuleBytes);
              }),
              AbortsSaying("was unmapped before a copy was done with it"));
}

TEST(FakeCudaStrictness, TakingAccessFromMemoryThatIsCopiedEndsTheProcess) {
  EXPECT_THAT(with_device([] {
                const CUdeviceptr address = map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                copy_pending(address, true);
                grant(address, CU_MEM_ACCESS_FLAGS_PROT_READ);
              }),
              AbortsSaying("lost access before a copy was done with it"));
}

TEST(FakeCudaStrictness, ReleasingAHandleDoesNotHarmCopies) {
  EXPECT_THAT(with_device([] {
                const CUmemGenericAllocationHandle handle = create();
                const CUdeviceptr address = map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                copy_pending(address, true);
                release(handle);
              }),
              Succeeds());
}

TEST(FakeCudaStrictness, UsingAReleasedHandleEndsTheProcess) {
  using Use = std::function<void(CUmemGenericAllocationHandle)>;
  const std::pair<const char*, Use> uses[] = {
      {"cuMemRelease", [](auto handle) { cu().MemRelease(handle); }},
      {"cuMemMap", [](auto handle) { map(handle); }},
      {"cuMemExportToShareableHandle", [](auto handle) { export_descriptor(handle); }},
      {"cuMemGetAllocationPropertiesFromHandle",
       [](auto handle) {
         CUmemAllocationProp properties{};
         cu().MemGetAllocationPropertiesFromHandle(&properties, handle);
       }},
  };
  for (const auto& [function, use] : uses) {
    EXPECT_THAT(with_device([&use = use] {
                  const CUmemGenericAllocationHandle handle = create();
                  release(handle);
                  use(handle);
                }),
                AbortsSaying(std::string(function) + ": "))
        << function;
  }
}

// A call of each function, whose success is not asked for.
std::vector<std::pair<const char*, std::function<CUresult()>>> calls(
    CUmemGenericAllocationHandle handle, CUdeviceptr mapped) {
  static const CUmemAllocationProp kProperties = properties_of();
  static CUmemAllocationProp told;
  static CUmemGenericAllocationHandle made;
  static CUdeviceptr address;
  static std::size_t bytes, more_bytes;
  static int descriptor;
  constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return {
      {"Create", [] { return cu().MemCreate(&made, kGranuleBytes, &kProperties, 0); }},
      {"Import",
       [] { return cu().MemImportFromShareableHandle(&made, reinterpret_cast<void*>(-1), kType); }},
      {"AddressReserve", [] { return cu().MemAddressReserve(&address, kGranuleBytes, 0, 0, 0); }},
      {"Map", [=] { return cu().MemMap(mapped, kGranuleBytes, 0, handle, 0); }},
      {"SetAccess", [=] { return grant(mapped, CU_MEM_ACCESS_FLAGS_PROT_READWRITE); }},
      {"Unmap", [=] { return cu().MemUnmap(mapped, kGranuleBytes); }},
      {"AddressFree", [=] { return cu().MemAddressFree(mapped, kGranuleBytes); }},
      {"Release", [=] { return cu().MemRelease(handle); }},
      {"GetInfo", [] { return cu().MemGetInfo(&bytes, &more_bytes); }},
      {"GetAllocationGranularity",
       [] {
         return cu().MemGetAllocationGranularity(&bytes, &kProperties,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
       }},
      {"Export", [=] { return cu().MemExportToShareableHandle(&descriptor, handle, kType, 0); }},
      {"GetAllocationProperties",
       [=] { return cu().MemGetAllocationPropertiesFromHandle(&told, handle); }},
  };
}
constexpr std::size_t kUnsafeCalls = 8;  // the first of them

TEST(FakeCudaStrictness, CallsOfVirtualMemoryNeedACurrentContext) {
  EXPECT_THAT(with_device([] {
                const CUmemGenericAllocationHandle handle = create();
                const CUdeviceptr mapped = map(handle);
                REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                for (const auto& [name, call] : calls(handle, mapped))
                  REQUIRE(call() == CUDA_ERROR_INVALID_CONTEXT);
              }),
              Succeeds());
}

TEST(FakeCudaStrictness, CallsThatChangeVirtualMemoryAreRefusedWhileCapturing) {
  EXPECT_THAT(with_device([] {
                const CUmemGenericAllocationHandle handle = create();
                const CUdeviceptr mapped = map(handle);
                const CUstream stream = new_stream();
                const auto all = calls(handle, mapped);
                for (std::size_t i = 0; i < all.size(); ++i) {
                  const bool refused = i < kUnsafeCalls;
                  REQUIRE(doors().begin_capture(stream) == CUDA_SUCCESS);
                  REQUIRE(all[i].second() ==
                          (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS));
                  REQUIRE(doors().end_capture(stream) ==
                          (refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
                }
              }),
              Succeeds());
}

TEST(FakeCudaLoss, CallsOfVirtualMemoryFailInABrokenContext) {
  EXPECT_THAT(with_device([] {
                const CUmemGenericAllocationHandle handle = create();
                const CUdeviceptr mapped = map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                REQUIRE(doors().break_context(0, CUDA_ERROR_ILLEGAL_ADDRESS) == CUDA_SUCCESS);
                for (const auto& [name, call] : calls(handle, mapped))
                  REQUIRE(call() == CUDA_ERROR_ILLEGAL_ADDRESS);
                REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                use_device();
                unmap(mapped);
                release(handle);
                REQUIRE(all_counts().shared_bytes == 0);
              }),
              Succeeds());
}

TEST(FakeCudaLoss, MemoryOfALostDeviceCannotBeMade) {
  EXPECT_THAT(with_device(
                  [] {
                    const int descriptor = export_descriptor(create());
                    const CUdeviceptr mapped = map(create());
                    use_device(1);
                    REQUIRE(doors().lose_device(0) == CUDA_SUCCESS);
                    CUmemGenericAllocationHandle handle = 0;
                    const CUmemAllocationProp first = properties_of(0), second = properties_of(1);
                    REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &first, 0) ==
                            CUDA_ERROR_ECC_UNCORRECTABLE);
                    REQUIRE(try_import(descriptor, handle) == CUDA_ERROR_ECC_UNCORRECTABLE);
                    REQUIRE(grant(mapped, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ==
                            CUDA_ERROR_ECC_UNCORRECTABLE);
                    unmap(mapped);
                    REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &second, 0) == CUDA_SUCCESS);
                  },
                  "FAKE_CUDA_DEVICES=2"),
              Succeeds());
}

TEST(FakeCudaLoss, MappingsOutliveTheirContext) {
  EXPECT_THAT(with_device([] {
                const CUdeviceptr address = map_with(create(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                content(address)[0] = 'a';
                REQUIRE(cu().CtxPopCurrent(nullptr) == CUDA_SUCCESS);
                REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                REQUIRE(own_counts().left_behind == 0 && own_counts().mapped_ranges == 1);
                REQUIRE(content(address)[0] == 'a');
                use_device();
                REQUIRE(fill(address, 'b', 1, nullptr) == CUDA_SUCCESS);
                REQUIRE(cu().StreamSynchronize(nullptr) == CUDA_SUCCESS);
                REQUIRE(content(address)[0] == 'b');
              }),
              Succeeds());
}

TEST(FakeCudaAttributes, VirtualMemoryCanBeUnsupported) {
  EXPECT_THAT(with_device(
                  [] {
                    const CUmemAllocationProp properties = properties_of();
                    CUmemGenericAllocationHandle handle = 0;
                    CUdeviceptr address = 0;
                    std::size_t granularity = 0;
                    REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &properties, 0) ==
                            CUDA_ERROR_NOT_SUPPORTED);
                    REQUIRE(cu().MemAddressReserve(&address, kGranuleBytes, 0, 0, 0) ==
                            CUDA_ERROR_NOT_SUPPORTED);
                    REQUIRE(cu().MemGetAllocationGranularity(&granularity, &properties,
                                                             CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
                            CUDA_ERROR_NOT_SUPPORTED);
                  },
                  "FAKE_CUDA_ATTRIBUTES=102=0"),
              Succeeds());
}

TEST(FakeCudaAttributes, ExportCanBeUnsupported) {
  EXPECT_THAT(with_device(
                  [] {
                    CUmemAllocationProp properties = properties_of();
                    CUmemGenericAllocationHandle handle = 0;
                    int descriptor = -1;
                    REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &properties, 0) ==
                            CUDA_ERROR_NOT_SUPPORTED);
                    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
                    REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &properties, 0) == CUDA_SUCCESS);
                    REQUIRE(cu().MemExportToShareableHandle(
                                &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
                            CUDA_ERROR_INVALID_VALUE);
                  },
                  "FAKE_CUDA_ATTRIBUTES=103=0"),
              Succeeds());
}

}  // namespace
}  // namespace spdld::fake_cuda

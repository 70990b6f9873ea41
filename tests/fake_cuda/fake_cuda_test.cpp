// SPDX-License-Identifier: Apache-2.0
// What the fake does beside what a driver does, which tests/gpu asks: its settings, failures that
// are asked for, its ledger, and what it does not let pass.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/fake_cuda/child.h"
#include "tests/support/scratch_dir.h"

namespace spdld::fake_cuda {
namespace {

constexpr std::size_t kBytes = 64 << 10;

// Some call of a function, for those that fail before they look at what they were given.
template <typename... Arguments>
CUresult call(CUresult (*function)(Arguments...)) {
  return function(Arguments{}...);
}

std::byte* mapped() {
  void* const address =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(address != MAP_FAILED);
  return static_cast<std::byte*>(address);
}

std::byte* registered() {
  std::byte* const address = mapped();
  REQUIRE(cu().MemHostRegister(address, kBytes, 0) == CUDA_SUCCESS);
  return address;
}

TEST(FakeCudaSettings, DevicesAreAsTheyWereSet) {
  EXPECT_THAT(
      in_child({"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_NAMES=First,Second",
                "FAKE_CUDA_UUIDS=00112233-4455-6677-8899-aabbccddeeff", "FAKE_CUDA_MEMORY=123456",
                "FAKE_CUDA_ATTRIBUTES=113=0,75=8", "FAKE_CUDA_COMPUTE_MODE=prohibited"},
               [] {
                 char name[32] = "";
                 CUuuid uuid{};
                 std::size_t bytes = 0;
                 int value = -1;
                 CUcontext context = nullptr;
                 REQUIRE(cu().DeviceGetName(name, sizeof name, 1) == CUDA_SUCCESS);
                 REQUIRE(name == std::string("Second"));
                 REQUIRE(cu().DeviceGetUuid(&uuid, 0) == CUDA_SUCCESS);
                 REQUIRE(static_cast<unsigned char>(uuid.bytes[1]) == 0x11);
                 REQUIRE(static_cast<unsigned char>(uuid.bytes[15]) == 0xff);
                 REQUIRE(cu().DeviceTotalMem(&bytes, 1) == CUDA_SUCCESS);
                 REQUIRE(bytes == 123456);
                 REQUIRE(cu().DeviceGetAttribute(&value,
                                                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                                 1) == CUDA_SUCCESS);
                 REQUIRE(value == 8);
                 REQUIRE(cu().DevicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
               }),
      Succeeds());
}

TEST(FakeCudaSettings, SettingsThatCannotBeReadEndTheProcess) {
  for (const char* const setting :
       {"FAKE_CUDA_DEVICES=two", "FAKE_CUDA_DEVICES=9", "FAKE_CUDA_UUIDS=nonsense",
        "FAKE_CUDA_ATTRIBUTES=1", "FAKE_CUDA_READ_ONLY_ACCESS=no", "FAKE_CUDA_COMPUTE_MODE=shared",
        "FAKE_CUDA_INIT=CUDA_ERROR_X", "FAKE_CUDA_FAIL=cuMemAlloc:CUDA_ERROR_UNKNOWN",
        "FAKE_CUDA_LEDGER=/nonexistent/ledger"}) {
    const std::string name = std::string(setting).substr(0, std::string(setting).find('='));
    EXPECT_THAT(in_child({setting}, [] { cuda::driver(); }), AbortsSaying(name)) << setting;
  }
}

TEST(FakeCudaFailures, TheCallThatIsToFailFails) {
  EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=cuMemAlloc:2:CUDA_ERROR_OUT_OF_MEMORY,"
                        "cuMemAlloc:4:CUDA_ERROR_UNKNOWN"},
                       [] {
                         use_device();
                         CUdeviceptr address = 0;
                         for (const CUresult expected : {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY,
                                                         CUDA_SUCCESS, CUDA_ERROR_UNKNOWN})
                           REQUIRE(cu().MemAlloc(&address, kBytes) == expected);
                         REQUIRE(doors().calls("cuMemAlloc") == 4);
                         REQUIRE(doors().calls("cuMemFree") == 0);
                         REQUIRE(own_counts().device_bytes == 2 * kBytes);
                       }),
              Succeeds());
}

TEST(FakeCudaFailures, EveryFunctionCanBeMadeToFail) {
#define FAKE_CUDA_FAILS(name, version)                                                       \
  EXPECT_THAT(in_child({"FAKE_CUDA_FAIL=cu" #name ":1:CUDA_ERROR_NOT_PERMITTED"},            \
                       [] {                                                                  \
                         using Function = decltype(cuda::Functions::name);                   \
                         const auto function =                                               \
                             reinterpret_cast<Function>(find_function("cu" #name, version)); \
                         REQUIRE(call(function) == CUDA_ERROR_NOT_PERMITTED);                \
                         REQUIRE(doors().calls("cu" #name) == 1);                            \
                       }),                                                                   \
              Succeeds())                                                                    \
      << "cu" #name;
  SPDLD_CUDA_FUNCTIONS(FAKE_CUDA_FAILS)
#undef FAKE_CUDA_FAILS
}

TEST(FakeCudaLedger, CountsWhatAProcessHolds) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         const CUdeviceptr memory = new_memory(kBytes);
                         const CUstream stream = new_stream();
                         CUevent event = nullptr;
                         void* allocated = nullptr;
                         std::byte* const pages = registered();
                         REQUIRE(cu().EventCreate(&event, 0) == CUDA_SUCCESS);
                         REQUIRE(cu().MemHostAlloc(&allocated, 1, 0) == CUDA_SUCCESS);
                         const FakeCudaCounts full = own_counts();
                         REQUIRE(full.processes == 1 && full.contexts == 1);
                         REQUIRE(full.device_bytes == kBytes && full.registered_bytes == kBytes);
                         REQUIRE(full.registrations == 1 && full.host_allocations == 1);
                         REQUIRE(full.streams == 1 && full.events == 1);
                         REQUIRE(cu().MemFree(memory) == CUDA_SUCCESS);
                         REQUIRE(cu().StreamDestroy(stream) == CUDA_SUCCESS);
                         REQUIRE(cu().EventDestroy(event) == CUDA_SUCCESS);
                         REQUIRE(cu().MemFreeHost(allocated) == CUDA_SUCCESS);
                         REQUIRE(cu().MemHostUnregister(pages) == CUDA_SUCCESS);
                         REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                         const FakeCudaCounts empty = own_counts();
                         REQUIRE(empty.contexts + empty.device_bytes + empty.registrations +
                                     empty.registered_bytes + empty.host_allocations +
                                     empty.streams + empty.events + empty.left_behind ==
                                 0);
                       }),
              Succeeds());
}

TEST(FakeCudaLedger, CountsWhatAContextLeavesBehind) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         new_memory(kBytes);
                         new_stream();
                         registered();
                         REQUIRE(cu().DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
                         const FakeCudaCounts counts = own_counts();
                         REQUIRE(counts.left_behind == 3);
                         REQUIRE(counts.device_bytes + counts.streams + counts.registrations == 0);
                       }),
              Succeeds());
}

TEST(FakeCudaLedger, ProcessesShareTheMemoryOfADevice) {
  const test::ScratchDir scratch;
  EXPECT_THAT(in_child({"FAKE_CUDA_LEDGER=" + scratch.path() + "/ledger", "FAKE_CUDA_MEMORY=1000"},
                       [] {
                         OtherProcess other([] {
                           use_device();
                           new_memory(800);
                         });
                         use_device();
                         CUdeviceptr address = 0;
                         REQUIRE(all_counts().processes == 2);
                         REQUIRE(cu().MemAlloc(&address, 201) == CUDA_ERROR_OUT_OF_MEMORY);
                         REQUIRE(cu().MemAlloc(&address, 200) == CUDA_SUCCESS);
                         REQUIRE(all_counts().device_bytes == 1000);
                       }),
              Succeeds());
}

TEST(FakeCudaLedger, WhatADeadProcessHeldIsFree) {
  const test::ScratchDir scratch;
  EXPECT_THAT(
      in_child({"FAKE_CUDA_LEDGER=" + scratch.path() + "/ledger", "FAKE_CUDA_MEMORY=1000",
                "FAKE_CUDA_COMPUTE_MODE=exclusive"},
               [] {
                 OtherProcess other([] {
                   use_device();
                   new_memory(800);
                   registered();
                 });
                 CUcontext context = nullptr;
                 REQUIRE(cu().DevicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_DEVICE_UNAVAILABLE);
                 other.kill();
                 use_device();
                 new_memory(1000);
                 REQUIRE(all_counts().processes == 1);
                 REQUIRE(all_counts().registrations == 0);
                 other.reap();
               }),
      Succeeds());
}

TEST(FakeCudaLedger, IsReadWithoutADevice) {
  const test::ScratchDir scratch;
  const std::string path = scratch.path() + "/ledger";
  EXPECT_THAT(in_child({"FAKE_CUDA_LEDGER=" + path},
                       [&] {
                         OtherProcess other([] {
                           use_device();
                           new_memory(800);
                         });
                         FakeCudaCounts counts{};
                         REQUIRE(doors().read_ledger(path.c_str(), &counts) == 0);
                         REQUIRE(counts.processes == 1 && counts.device_bytes == 800);
                         other.kill();
                         REQUIRE(doors().read_ledger(path.c_str(), &counts) == 0);
                         REQUIRE(counts.processes == 0 && counts.device_bytes == 0);
                         REQUIRE(doors().read_ledger("/nonexistent", &counts) == -1);
                       }),
              Succeeds());
}

TEST(FakeCudaLedger, RefusesFilesOfAnotherKind) {
  const test::ScratchDir scratch;
  const std::string path = scratch.write("text", std::string(1 << 20, 'x'));
  EXPECT_THAT(in_child({},
                       [&] {
                         FakeCudaCounts counts{};
                         REQUIRE(doors().read_ledger(path.c_str(), &counts) == -1);
                       }),
              Succeeds());
  EXPECT_THAT(in_child({"FAKE_CUDA_LEDGER=" + path}, [] { cuda::driver(); }),
              AbortsSaying("another kind of file"));
}

TEST(FakeCudaStrictness, UnmappingRegisteredMemoryEndsTheProcess) {
  const auto unmap_and = [](const std::function<void(std::byte*)>& go_on) {
    return in_child({}, [&] {
      use_device();
      std::byte* const pages = registered();
      REQUIRE(::munmap(pages, kBytes) == 0);
      go_on(pages);
    });
  };
  constexpr const char* kMessage = "were unmapped while registered";
  EXPECT_THAT(unmap_and([](std::byte* pages) { cu().MemHostUnregister(pages); }),
              AbortsSaying(kMessage));
  // Not newly mapped memory, which might come to lie where the other was.
  static std::byte other[kBytes];
  EXPECT_THAT(unmap_and([](std::byte*) { cu().MemHostRegister(other, kBytes, 0); }),
              AbortsSaying(kMessage));
  EXPECT_THAT(unmap_and([](std::byte*) { cu().DevicePrimaryCtxRelease(0); }),
              AbortsSaying(kMessage));
}

TEST(FakeCudaStrictness, MappingAnotherFileOverARegistrationEndsTheProcess) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         std::byte* const pages = registered();
                         const int fd = ::memfd_create("other", 0);
                         REQUIRE(::ftruncate(fd, kBytes) == 0);
                         REQUIRE(::mmap(pages, kBytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_FIXED, fd, 0) == pages);
                         cu().MemHostUnregister(pages);
                       }),
              AbortsSaying("were unmapped while registered"));
}

TEST(FakeCudaStrictness, LettingGoOfMemoryThatIsCopiedEndsTheProcess) {
  const auto copy_and = [](const std::function<void(std::byte*)>& go_on, bool allocated) {
    return in_child({}, [&] {
      use_device();
      void* from = nullptr;
      if (allocated) {
        REQUIRE(cu().MemHostAlloc(&from, kBytes, 0) == CUDA_SUCCESS);
      } else {
        from = registered();
      }
      const CUstream stream = new_stream();
      static Gate gate;
      gate.hold(stream);
      REQUIRE(cu().MemcpyHtoDAsync(new_memory(kBytes), from, kBytes, stream) == CUDA_SUCCESS);
      go_on(static_cast<std::byte*>(from));
    });
  };
  constexpr const char* kMessage = "was let go before a copy was done with it";
  EXPECT_THAT(copy_and([](std::byte* from) { cu().MemHostUnregister(from); }, false),
              AbortsSaying(kMessage));
  EXPECT_THAT(copy_and([](std::byte* from) { cu().MemFreeHost(from); }, true),
              AbortsSaying(kMessage));
}

TEST(FakeCudaStrictness, HandlesAreNotUsedAfterTheirEnd) {
  EXPECT_THAT(in_child({},
                       [] {
                         use_device();
                         const CUstream stream = new_stream();
                         CUevent event = nullptr;
                         REQUIRE(cu().EventCreate(&event, 0) == CUDA_SUCCESS);
                         REQUIRE(cu().EventDestroy(event) == CUDA_SUCCESS);
                         REQUIRE(cu().EventQuery(event) == CUDA_ERROR_INVALID_HANDLE);
                         REQUIRE(cu().EventDestroy(event) == CUDA_ERROR_INVALID_HANDLE);
                         REQUIRE(cu().StreamDestroy(stream) == CUDA_SUCCESS);
                         REQUIRE(cu().StreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
                         REQUIRE(cu().StreamQuery(stream) == CUDA_ERROR_INVALID_HANDLE);
                         REQUIRE(cu().StreamDestroy(stream) == CUDA_ERROR_INVALID_HANDLE);
                       }),
              Succeeds());
}

}  // namespace
}  // namespace spdld::fake_cuda

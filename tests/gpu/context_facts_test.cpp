// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about primary contexts.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/gpu/facts.h"
#include "tests/gpu/new_process.h"

namespace spdld::cuda {
namespace {

TEST_F(DeviceFacts, ADeviceHasOnePrimaryContext) {
  CUcontext again = nullptr;
  EXPECT_EQ(cu().DevicePrimaryCtxRetain(&again, device()), CUDA_SUCCESS);
  EXPECT_EQ(again, context());
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(device()), CUDA_SUCCESS);
  EXPECT_NE(memory(1), 0u) << "the context is there as long as one retains it";
}

TEST_F(DeviceFacts, CallsNeedACurrentContext) {
  const Pages pages(4096);
  elsewhere([&] {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    void* host = nullptr;
    EXPECT_EQ(cu().MemAlloc(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu().StreamCreateWithPriority(&stream, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu().EventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu().MemHostAlloc(&host, 1, 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu().MemHostRegister(pages.begin(), 4096, 0), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(DeviceFacts, AThreadPopsWhatItPushed) {
  elsewhere([&] {
    CUcontext popped = nullptr;
    EXPECT_EQ(cu().CtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu().CtxPushCurrent(context()), CUDA_SUCCESS);
    EXPECT_EQ(cu().CtxPushCurrent(context()), CUDA_SUCCESS);
    EXPECT_EQ(cu().CtxPopCurrent(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, context());
    CUdeviceptr memory = 0;
    EXPECT_EQ(cu().MemAlloc(&memory, 1), CUDA_SUCCESS) << "the first one is still there";
    EXPECT_EQ(cu().MemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cu().MemAlloc(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(DeviceFacts, ThreadsMayUseOneContextTogether) {
  constexpr std::size_t kBytes = 4096;
  std::byte* const from = pinned(kBytes);
  std::memset(from, 6, kBytes);
  const CUdeviceptr to = memory(kBytes);
  in_thread([&] {
    CUstream const copies = stream();
    EXPECT_EQ(cu().MemcpyHtoDAsync(to, from, kBytes, copies), CUDA_SUCCESS);
    EXPECT_EQ(filled_with(to, kBytes, copies), 6);
  });
}

class ContextEndFacts : public DriverFacts {
 protected:
  void SetUp() override {
    DriverFacts::SetUp();
    if (IsSkipped()) return;
    if (!driver()) GTEST_SKIP() << driver().why_not;
    cu_ = driver().functions;
  }
  const Functions& cu() const { return *cu_; }
  const Functions* cu_ = nullptr;
};

TEST_F(ContextEndFacts, ReleasingWhatIsNotRetainedIsRefused) {
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(ContextEndFacts, TheLastReleaseEndsTheContext) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_EQ(cu().DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().CtxPushCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAlloc(&memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAlloc(&memory, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cu().CtxPopCurrent(&context), CUDA_SUCCESS) << "a thread keeps what it pushed";
}

TEST_F(ContextEndFacts, AContextThatIsRetainedAnewIsEmpty) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_EQ(cu().DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().CtxPushCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemAlloc(&memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  ASSERT_EQ(cu().DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().CtxPushCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemFree(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

TEST_F(ContextEndFacts, TheEndOfAContextUnregistersHostMemory) {
  const Pages pages(4096);
  CUcontext context = nullptr;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(cu().DevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu().CtxPushCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cu().MemHostRegister(pages.begin(), 4096, 0), CUDA_SUCCESS) << "round " << round;
    EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cu().DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  }
}

TEST_F(DriverFacts, AnExclusiveDeviceLetsOneProcessIn) {
  HOLDS_IN_A_NEW_PROCESS({
    const auto retain = symbol<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain");
    CUcontext context = nullptr;
    int told[2];
    char byte = 0;
    REQUIRE(::pipe(told) == 0);
    const pid_t first = ::fork();
    if (first == 0) {
      REQUIRE(init() == CUDA_SUCCESS);
      REQUIRE(retain(&context, 0) == CUDA_SUCCESS);
      REQUIRE(::write(told[1], "x", 1) == 1);
      for (;;) ::pause();
    }
    REQUIRE(::read(told[0], &byte, 1) == 1);
    REQUIRE(init() == CUDA_SUCCESS);
    int mode = 0;
    REQUIRE(symbol<PFN_cuDeviceGetAttribute_v2000>("cuDeviceGetAttribute")(
                &mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0) == CUDA_SUCCESS);
    const bool exclusive = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    REQUIRE(retain(&context, 0) == (exclusive ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS));
    REQUIRE(::kill(first, SIGKILL) == 0);
    REQUIRE(::waitpid(first, nullptr, 0) == first);
    REQUIRE(retain(&context, 0) == CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace spdld::cuda

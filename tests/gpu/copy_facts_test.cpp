// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about the order of copies: streams and events.
#include "tests/gpu/facts.h"

namespace spdld::cuda {
namespace {

constexpr std::size_t kCopyBytes = 64 << 10;
constexpr int kTries = 200;

class CopyFacts : public DeviceFacts {
 protected:
  void SetUp() override {
    DeviceFacts::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ones_ = pinned(kCopyBytes);
    twos_ = pinned(kCopyBytes);
    to_ = memory(kCopyBytes);
    std::memset(ones_, 1, kCopyBytes);
    std::memset(twos_, 2, kCopyBytes);
  }
  void copy(const std::byte* from, CUstream stream) {
    EXPECT_EQ(cu().MemcpyHtoDAsync(to_, from, kCopyBytes, stream), CUDA_SUCCESS);
  }
  void record(CUevent event, CUstream stream) {
    EXPECT_EQ(cu().EventRecord(event, stream), CUDA_SUCCESS);
  }
  void wait(CUstream stream, CUevent event) {
    EXPECT_EQ(cu().StreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT), CUDA_SUCCESS);
  }
  int found(CUstream stream) { return filled_with(to_, kCopyBytes, stream); }

  std::byte* ones_ = nullptr;
  std::byte* twos_ = nullptr;
  CUdeviceptr to_ = 0;
};

TEST_F(CopyFacts, CopiesOfAStreamAreMadeInOrder) {
  const CUstream one = stream();
  for (int round = 0; round < 20; ++round) {
    copy(ones_, one);
    copy(twos_, one);
  }
  EXPECT_EQ(found(one), 2);
}

TEST_F(CopyFacts, ACopyOfNothingSucceeds) {
  EXPECT_EQ(cu().MemcpyHtoDAsync(to_, ones_, 0, stream()), CUDA_SUCCESS);
}

TEST_F(CopyFacts, CopiesBeyondAnAllocationAreRefused) {
  std::byte* const large = pinned(8 << 20);
  EXPECT_EQ(cu().MemcpyHtoDAsync(to_, large, 8 << 20, stream()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemcpyHtoDAsync(0, large, 1, stream()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyFacts, PartsOfAllocationsCanBeCopied) {
  const CUstream one = stream();
  copy(ones_, one);
  EXPECT_EQ(cu().MemcpyHtoDAsync(to_ + 1000, twos_ + 10, 100, one), CUDA_SUCCESS);
  const auto bytes = content(to_ + 999, 102, one);
  EXPECT_EQ(bytes.front(), 1);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin() + 1, bytes.end() - 1),
            std::vector<std::uint8_t>(100, 2));
  EXPECT_EQ(bytes.back(), 1);
}

TEST_F(CopyFacts, PinnedMemoryIsReadWhenTheCopyIsMade) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "what is shown here is a data race";
#endif
#endif
  const CUstream one = stream();
  for (int round = 0; round < kTries; ++round) {
    std::memset(ones_, 1, kCopyBytes);
    keep_busy(one);
    copy(ones_, one);
    std::memset(ones_, 3, kCopyBytes);
    if (found(one) == 3) return;
  }
  FAIL() << "no copy was made later than it was asked for";
}

TEST_F(CopyFacts, PageableMemoryIsReadBeforeTheCallReturns) {
  const CUstream one = stream();
  std::vector<std::byte> pageable(kCopyBytes);
  keep_busy(one);
  std::memset(pageable.data(), 4, kCopyBytes);
  copy(pageable.data(), one);
  std::memset(pageable.data(), 5, kCopyBytes);
  EXPECT_EQ(found(one), 4);
}

TEST_F(CopyFacts, CopiesToPageableMemoryAreDoneWhenTheCallReturns) {
  const CUstream one = stream();
  std::vector<std::uint8_t> pageable(kCopyBytes);
  keep_busy(one);
  copy(ones_, one);
  EXPECT_EQ(more().MemcpyDtoHAsync(pageable.data(), to_, kCopyBytes, one), CUDA_SUCCESS);
  EXPECT_EQ(pageable, std::vector<std::uint8_t>(kCopyBytes, 1));
}

TEST_F(CopyFacts, CopiesToPinnedMemoryAreDoneWithTheirStream) {
  const CUstream one = stream();
  keep_busy(one);
  copy(ones_, one);
  EXPECT_EQ(more().MemcpyDtoHAsync(twos_, to_, kCopyBytes, one), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamSynchronize(one), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(ones_, twos_, kCopyBytes), 0);
}

TEST_F(CopyFacts, AnEventNeverRecordedHasPassed) {
  const CUevent never = event();
  EXPECT_EQ(cu().EventQuery(never), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventSynchronize(never), CUDA_SUCCESS);
  wait(stream(), never);
}

TEST_F(CopyFacts, AnEventPassesWithTheWorkBeforeIt) {
  const CUstream one = stream();
  const CUevent done = event();
  bool seen_pending = false;
  for (int round = 0; round < kTries && !seen_pending; ++round) {
    keep_busy(one);
    record(done, one);
    seen_pending = cu().EventQuery(done) == CUDA_ERROR_NOT_READY;
    EXPECT_EQ(cu().EventSynchronize(done), CUDA_SUCCESS);
    EXPECT_EQ(cu().EventQuery(done), CUDA_SUCCESS);
  }
  EXPECT_TRUE(seen_pending);
}

TEST_F(CopyFacts, AnEventRecordedTwiceIsOfTheSecondTime) {
  const CUstream one = stream();
  const CUevent twice = event();
  record(twice, one);
  EXPECT_EQ(cu().EventSynchronize(twice), CUDA_SUCCESS);
  bool seen_pending = false;
  for (int round = 0; round < kTries && !seen_pending; ++round) {
    keep_busy(one);
    record(twice, one);
    seen_pending = cu().EventQuery(twice) == CUDA_ERROR_NOT_READY;
  }
  EXPECT_TRUE(seen_pending);
}

TEST_F(CopyFacts, AnEventOfAnotherStreamHoldsBackACopy) {
  const CUstream first = stream(), second = stream();
  const CUevent copied = event();
  for (int round = 0; round < 10; ++round) {
    keep_busy(first);
    copy(ones_, first);
    record(copied, first);
    wait(second, copied);
    copy(twos_, second);
    EXPECT_EQ(found(second), 2) << "round " << round;
  }
}

TEST_F(CopyFacts, AWaitIsForWhatWasRecordedBeforeIt) {
  const CUstream first = stream(), second = stream();
  const CUevent copied = event();
  copy(ones_, first);
  record(copied, first);
  wait(second, copied);
  record(copied, second);  // would wait for itself
  EXPECT_EQ(found(second), 1);
  EXPECT_EQ(cu().EventSynchronize(copied), CUDA_SUCCESS);
}

TEST_F(CopyFacts, AnEventMayBeDestroyedBeforeItPasses) {
  const CUstream first = stream(), second = stream();
  CUevent copied = nullptr;
  ASSERT_EQ(cu().EventCreate(&copied, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  keep_busy(first);
  copy(ones_, first);
  record(copied, first);
  wait(second, copied);
  EXPECT_EQ(cu().EventDestroy(copied), CUDA_SUCCESS);
  EXPECT_EQ(found(second), 1) << "the wait holds";
}

TEST_F(CopyFacts, AStreamThatIsDestroyedFinishesItsWork) {
  const CUevent done = event();
  CUstream gone = nullptr;
  ASSERT_EQ(cu().StreamCreateWithPriority(&gone, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  keep_busy(gone);
  copy(ones_, gone);
  record(done, gone);
  EXPECT_EQ(cu().StreamDestroy(gone), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventSynchronize(done), CUDA_SUCCESS);
  EXPECT_EQ(found(stream()), 1);
}

TEST_F(CopyFacts, AStreamTellsWhetherItsWorkIsDone) {
  const CUstream asked = stream();
  for (const CUstream each : {asked, CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(cu().StreamQuery(each), CUDA_SUCCESS) << "nothing was given to it";
    bool seen_busy = false;
    for (int round = 0; round < kTries && !seen_busy; ++round) {
      keep_busy(each);
      seen_busy = cu().StreamQuery(each) == CUDA_ERROR_NOT_READY;
    }
    EXPECT_TRUE(seen_busy);
    EXPECT_EQ(cu().StreamSynchronize(each), CUDA_SUCCESS);
    EXPECT_EQ(cu().StreamQuery(each), CUDA_SUCCESS);
  }
}

TEST_F(CopyFacts, AStreamThatWaitsForAnEventIsNotDone) {
  const CUstream busy = stream(), waiting = stream();
  const CUevent done = event();
  bool seen_waiting = false;
  for (int round = 0; round < kTries && !seen_waiting; ++round) {
    keep_busy(busy);
    record(done, busy);
    wait(waiting, done);
    seen_waiting = cu().StreamQuery(waiting) == CUDA_ERROR_NOT_READY;
  }
  EXPECT_TRUE(seen_waiting);
  EXPECT_EQ(cu().StreamSynchronize(waiting), CUDA_SUCCESS);
}

TEST_F(CopyFacts, TheQueryOfTheLegacyStreamMayLeaveOutBlockingStreams) {
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  keep_busy(blocking);
  // Either will do: nobody here takes the one for the other.
  const CUresult told = cu().StreamQuery(nullptr);
  EXPECT_TRUE(told == CUDA_SUCCESS || told == CUDA_ERROR_NOT_READY) << told;
  EXPECT_EQ(cu().StreamSynchronize(blocking), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamQuery(nullptr), CUDA_SUCCESS);
}

TEST_F(CopyFacts, TheLegacyStreamWaitsForBlockingStreams) {
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  for (const CUstream legacy : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
    keep_busy(blocking);
    copy(ones_, blocking);
    copy(twos_, legacy);
    EXPECT_EQ(cu().StreamSynchronize(legacy), CUDA_SUCCESS);
    EXPECT_EQ(cu().StreamSynchronize(blocking), CUDA_SUCCESS);
    EXPECT_EQ(found(legacy), 2) << "the other copy was the earlier one";
  }
}

TEST_F(CopyFacts, BlockingStreamsWaitForTheLegacyStream) {
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  for (const CUstream waiting : {blocking, CU_STREAM_PER_THREAD}) {
    keep_busy(nullptr);
    copy(ones_, nullptr);
    copy(twos_, waiting);
    EXPECT_EQ(cu().StreamSynchronize(waiting), CUDA_SUCCESS);
    EXPECT_EQ(cu().StreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(found(waiting), 2) << "the other copy was the earlier one";
  }
}

TEST_F(CopyFacts, NonBlockingStreamsPassTheLegacyStreamBy) {
  const CUstream one = stream(), other = stream();
  const CUevent legacy_done = event();
  bool seen_passing = false;
  for (int round = 0; round < kTries && !seen_passing; ++round) {
    keep_busy(nullptr);
    record(legacy_done, nullptr);
    EXPECT_EQ(cu().StreamSynchronize(round % 2 == 0 ? one : other), CUDA_SUCCESS);
    seen_passing = cu().EventQuery(legacy_done) == CUDA_ERROR_NOT_READY;
  }
  EXPECT_TRUE(seen_passing);
  EXPECT_EQ(cu().EventSynchronize(legacy_done), CUDA_SUCCESS);
}

TEST_F(CopyFacts, EachThreadHasAStreamOfItsOwn) {
  const CUevent here = event(), there = event();
  keep_busy(CU_STREAM_PER_THREAD);
  copy(ones_, CU_STREAM_PER_THREAD);
  record(here, CU_STREAM_PER_THREAD);
  in_thread([&] {
    wait(CU_STREAM_PER_THREAD, here);
    copy(twos_, CU_STREAM_PER_THREAD);
    record(there, CU_STREAM_PER_THREAD);
  });
  wait(CU_STREAM_PER_THREAD, there);
  EXPECT_EQ(found(CU_STREAM_PER_THREAD), 2);
}

TEST_F(CopyFacts, UnknownFlagsOfStreamsAndEventsAreRefused) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  EXPECT_EQ(cu().StreamCreateWithPriority(&stream, 1u << 30, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().EventCreate(&event, 1u << 30), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyFacts, PortableRegistrationServesTheContextsOfOtherDevices) {
  if (driver().devices < 2) GTEST_SKIP() << "there is one device";
  Pages pages(kCopyBytes);
  pages.fill(7);
  ASSERT_EQ(cu().MemHostRegister(pages.begin(), kCopyBytes, CU_MEMHOSTREGISTER_PORTABLE),
            CUDA_SUCCESS);
  CUcontext second = nullptr;
  ASSERT_EQ(cu().DevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cu().CtxPushCurrent(second), CUDA_SUCCESS);
  CUstream stream = nullptr;
  CUdeviceptr to = 0;
  ASSERT_EQ(cu().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().MemAlloc(&to, kCopyBytes), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemcpyHtoDAsync(to, pages.begin(), kCopyBytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(filled_with(to, kCopyBytes, stream), 7);
  EXPECT_EQ(cu().MemFree(to), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(cu().MemHostUnregister(pages.begin()), CUDA_SUCCESS);
}

TEST_F(CopyFacts, EventsAreRecordedInTheirOwnContext) {
  if (driver().devices < 2) GTEST_SKIP() << "there is one device";
  const CUevent of_first = event();
  CUcontext second = nullptr;
  ASSERT_EQ(cu().DevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cu().CtxPushCurrent(second), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(cu().StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventRecord(of_first, stream), CUDA_ERROR_INVALID_HANDLE);
  wait(stream, of_first);
  EXPECT_EQ(cu().StreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(cu().CtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu().DevicePrimaryCtxRelease(1), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spdld::cuda

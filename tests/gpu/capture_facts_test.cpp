// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about what may be called while a graph is captured.
#include "tests/gpu/facts.h"

namespace spdld::cuda {
namespace {

constexpr std::size_t kCapturedBytes = 4096;

class CaptureFacts : public DeviceFacts {
 protected:
  void SetUp() override {
    DeviceFacts::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // Made before, since some may not be made meanwhile.
    captured_ = stream();
    other_ = stream();
    event_ = event();
    to_ = memory(kCapturedBytes);
    from_ = pinned(kCapturedBytes);
    std::memset(from_, 1, kCapturedBytes);
    EXPECT_EQ(cu().MemcpyHtoDAsync(to_, from_, kCapturedBytes, captured_), CUDA_SUCCESS);
    EXPECT_EQ(cu().StreamSynchronize(captured_), CUDA_SUCCESS);
  }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(more().StreamBeginCapture(captured_, mode), CUDA_SUCCESS);
  }
  // Whether the capture has made a graph.
  CUresult end() {
    CUgraph graph = nullptr;
    const CUresult result = more().StreamEndCapture(captured_, &graph);
    if (graph != nullptr) {
      EXPECT_EQ(more().GraphDestroy(graph), CUDA_SUCCESS);
    }
    return result;
  }
  CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus status{};
    EXPECT_EQ(cu().StreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
  }
  // Expects that a call is refused during a capture in global mode, and that this spoils it.
  void expect_refused(const std::function<CUresult()>& call) {
    begin();
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_NONE);
  }

  CUstream captured_ = nullptr;
  CUstream other_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr to_ = 0;
  std::byte* from_ = nullptr;
};

TEST_F(CaptureFacts, AStreamTellsWhetherItIsCapturing) {
  EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_NONE);
  begin();
  EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureFacts, CopiesThatAreCapturedAreNotMade) {
  begin();
  std::memset(from_, 2, kCapturedBytes);
  EXPECT_EQ(cu().MemcpyHtoDAsync(to_, from_, kCapturedBytes, captured_), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(filled_with(to_, kCapturedBytes, captured_), 1);
}

TEST_F(CaptureFacts, CapturedEventsCannotBeAskedAbout) {
  for (const auto ask : {cu().EventQuery, cu().EventSynchronize}) {
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT_EQ(cu().EventRecord(event_, captured_), CUDA_SUCCESS);
    EXPECT_EQ(ask(event_), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(CaptureFacts, AnEventRecordedAnewIsNoLongerCaptured) {
  begin();
  EXPECT_EQ(cu().EventRecord(event_, captured_), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventRecord(event_, captured_), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventSynchronize(event_), CUDA_SUCCESS);
}

TEST_F(CaptureFacts, QueriesOfOtherEventsAreRefusedWhileCapturing) {
  expect_refused([&] { return cu().EventQuery(event_); });
}

TEST_F(CaptureFacts, WaitingForOtherEventsIsRefusedWhileCapturing) {
  expect_refused([&] { return cu().EventSynchronize(event_); });
}

TEST_F(CaptureFacts, WaitingForTheCapturedStreamIsRefused) {
  expect_refused([&] { return cu().StreamSynchronize(captured_); });
}

TEST_F(CaptureFacts, WaitingForOtherStreamsIsRefusedWhileCapturing) {
  expect_refused([&] { return cu().StreamSynchronize(other_); });
}

TEST_F(CaptureFacts, QueriesOfTheCapturedStreamAreRefused) {
  expect_refused([&] { return cu().StreamQuery(captured_); });
}

TEST_F(CaptureFacts, QueriesOfOtherStreamsAreRefusedWhileCapturing) {
  expect_refused([&] { return cu().StreamQuery(other_); });
}

TEST_F(CaptureFacts, AllocatingIsRefusedWhileCapturing) {
  expect_refused([&] {
    CUdeviceptr address = 0;
    return cu().MemAlloc(&address, kCapturedBytes);
  });
  expect_refused([&] {
    void* address = nullptr;
    return cu().MemHostAlloc(&address, kCapturedBytes, 0);
  });
}

TEST_F(CaptureFacts, FreeingIsRefusedWhileCapturing) {
  expect_refused([&] { return cu().MemFree(to_); });
  expect_refused([&] { return cu().MemFreeHost(from_); });
}

TEST_F(CaptureFacts, RegisteringIsRefusedWhileCapturing) {
  const Pages pages(kCapturedBytes);
  expect_refused([&] { return cu().MemHostRegister(pages.begin(), kCapturedBytes, 0); });
  ASSERT_EQ(cu().MemHostRegister(pages.begin(), kCapturedBytes, 0), CUDA_SUCCESS);
  expect_refused([&] { return cu().MemHostUnregister(pages.begin()); });
  EXPECT_EQ(cu().MemHostUnregister(pages.begin()), CUDA_SUCCESS);
}

TEST_F(CaptureFacts, AGlobalCaptureRefusesQueriesOfOtherThreads) {
  expect_refused([&] {
    CUresult result{};
    in_thread([&] { result = cu().EventQuery(event_); });
    return result;
  });
}

TEST_F(CaptureFacts, AThreadLocalCaptureLetsOtherThreadsAsk) {
  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  in_thread([&] { EXPECT_EQ(cu().EventQuery(event_), CUDA_SUCCESS); });
  EXPECT_EQ(end(), CUDA_SUCCESS);
  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(cu().EventQuery(event_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureFacts, ARelaxedCaptureLetsItsThreadAsk) {
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(cu().EventQuery(event_), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(CaptureFacts, ARelaxedThreadMayAskDuringAnyCapture) {
  begin();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(more().ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(cu().EventQuery(event_), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamQuery(other_), CUDA_SUCCESS);
  EXPECT_EQ(more().ThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(CaptureFacts, CopiesOnOtherStreamsAreMadeWhileCapturing) {
  begin();
  std::memset(from_, 2, kCapturedBytes);
  EXPECT_EQ(cu().MemcpyHtoDAsync(to_, from_, kCapturedBytes, other_), CUDA_SUCCESS);
  EXPECT_EQ(cu().EventRecord(event_, other_), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(filled_with(to_, kCapturedBytes, other_), 2);
}

TEST_F(CaptureFacts, ACaptureCannotWaitForWhatIsNotCaptured) {
  EXPECT_EQ(cu().EventRecord(event_, other_), CUDA_SUCCESS);
  begin();
  EXPECT_EQ(cu().StreamWaitEvent(captured_, event_, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureFacts, AStreamThatWaitsForACaptureJoinsIt) {
  const CUevent joined = event();
  begin();
  EXPECT_EQ(cu().EventRecord(event_, captured_), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamWaitEvent(other_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cu().EventRecord(joined, other_), CUDA_SUCCESS);
  EXPECT_EQ(cu().StreamWaitEvent(captured_, joined, 0), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureFacts, TheLegacyStreamIsUnusableBesideABlockingCapture) {
  captured_ = stream(CU_STREAM_DEFAULT);
  CUstreamCaptureStatus status{};
  begin();
  EXPECT_EQ(cu().StreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(), CUDA_SUCCESS) << "asking spoils nothing";
  begin();
  EXPECT_EQ(cu().MemcpyHtoDAsync(to_, from_, kCapturedBytes, nullptr),
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin();
  EXPECT_EQ(cu().StreamQuery(nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureFacts, TheLegacyStreamCannotBeCaptured) {
  EXPECT_EQ(more().StreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_F(CaptureFacts, ACaptureBeginsAndEndsOnce) {
  CUgraph graph = nullptr;
  EXPECT_EQ(more().StreamEndCapture(captured_, &graph), CUDA_ERROR_ILLEGAL_STATE);
  begin();
  EXPECT_EQ(more().StreamBeginCapture(captured_, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_ILLEGAL_STATE);
  end();
  EXPECT_EQ(end(), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(CaptureFacts, TheThreadThatBeganACaptureEndsIt) {
  begin();
  in_thread([&] { EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD); });
  end();
  EXPECT_EQ(status(captured_), CU_STREAM_CAPTURE_STATUS_NONE);
}

}  // namespace
}  // namespace spdld::cuda

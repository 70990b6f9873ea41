// SPDX-License-Identifier: Apache-2.0
// The functions of the driver about streams, and what captures them.
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/handles.h"

namespace spdld::fake_cuda {
namespace {

// Runs `body(Driver&, Context&, Stream&)` if the handle means a stream.
template <typename Body>
CUresult with_stream(const char* function, CUstream handle, Body body) {
  return with_context(function, [&](Driver& driver, Context& context) {
    Stream* const stream = driver.streams.find(handle, context.handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(driver, context, *stream);
  });
}

// Whether the calling thread may ask how far a stream is.
CUresult refuse_to_tell(Driver& driver, Stream& stream) {
  Use use{};
  if (const CUresult refused = driver.streams.begin_use(stream, use); refused != CUDA_SUCCESS)
    return refused;
  if (use == Use::kCaptured) {
    stream.capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return driver.streams.refuse_while_capturing();
}

}  // namespace

FAKE_CUDA_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  return with_context("cuStreamCreateWithPriority", [&](Driver& driver, Context& context) {
    if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    *stream = driver.streams.create(context.handle, flags == CU_STREAM_DEFAULT);
    ++driver.ledger.own().streams;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
  return with_stream("cuStreamDestroy", handle, [&](Driver& driver, Context&, Stream& stream) {
    // Special handles are of streams that nobody made.
    if (stream.handle != handle) return CUDA_ERROR_INVALID_HANDLE;
    driver.streams.destroy(stream);
    --driver.ledger.own().streams;
    return CUDA_SUCCESS;
  });
}

// Of streams that another one waits for, its query may tell or not: this one does not.
FAKE_CUDA_EXPORT CUresult cuStreamQuery(CUstream handle) {
  return with_stream("cuStreamQuery", handle, [&](Driver& driver, Context&, Stream& stream) {
    if (const CUresult refused = refuse_to_tell(driver, stream); refused != CUDA_SUCCESS)
      return refused;
    return driver.scheduler.passed(driver.scheduler.last(stream.queue)) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_NOT_READY;
  });
}

FAKE_CUDA_EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  Point all;
  CUcontext its_context = nullptr;
  const CUresult result = with_stream(
      "cuStreamSynchronize", handle, [&](Driver& driver, Context& context, Stream& stream) {
        if (const CUresult refused = refuse_to_tell(driver, stream); refused != CUDA_SUCCESS)
          return refused;
        // The legacy stream is done when all that it waits for is.
        all = stream.legacy ? driver.streams.add(stream, {}, {})
                            : driver.scheduler.last(stream.queue);
        its_context = context.handle;
        return CUDA_SUCCESS;
      });
  return its_context == nullptr ? result : wait_for(all, its_context);
}

FAKE_CUDA_EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  return with_stream("cuStreamWaitEvent", handle, [&](Driver& driver, Context&, Stream& stream) {
    const auto event = driver.events.find(event_handle);
    if (event == driver.events.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
    Use use{};
    if (const CUresult refused = driver.streams.begin_use(stream, use); refused != CUDA_SUCCESS)
      return refused;
    const CapturePtr& capture = event->second.capture;
    if (use == Use::kCaptured && capture != stream.capture) {
      stream.capture->invalidated = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (capture != nullptr) {
      stream.capture = capture;  // it joins
    } else {
      driver.streams.add(stream, {event->second.point}, {});
    }
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return with_stream("cuStreamIsCapturing", handle, [&](Driver& driver, Context&, Stream& stream) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.streams.captured_implicitly(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = stream.capture == nullptr     ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return with_stream("cuStreamBeginCapture", handle, [&](Driver& driver, Context&, Stream& stream) {
    return driver.streams.begin_capture(stream, mode);
  });
}

FAKE_CUDA_EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return with_stream("cuStreamEndCapture", handle, [&](Driver& driver, Context&, Stream& stream) {
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult ended = driver.streams.end_capture(stream);
    *graph = ended == CUDA_SUCCESS ? new_handle<CUgraph>() : nullptr;
    return ended;
  });
}

// Graphs cannot be run here: one is nothing but its handle.
FAKE_CUDA_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  return with_driver("cuGraphDestroy", [&](Driver&) {
    return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver("cuThreadExchangeStreamCaptureMode", [&](Driver&) {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = exchange_capture_mode(*mode);
    return CUDA_SUCCESS;
  });
}

}  // namespace spdld::fake_cuda

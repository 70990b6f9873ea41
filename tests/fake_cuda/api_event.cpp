// SPDX-License-Identifier: Apache-2.0
// The functions of the driver about events.
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/handles.h"

namespace spdld::fake_cuda {
namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// Runs `body(Driver&, Context&, Event&)` if there is such an event.
template <typename Body>
CUresult with_event(const char* function, CUevent handle, Body body) {
  return with_context(function, [&](Driver& driver, Context& context) {
    const auto event = driver.events.find(handle);
    return event == driver.events.end() ? CUDA_ERROR_INVALID_HANDLE
                                        : body(driver, context, event->second);
  });
}

// Whether the calling thread may ask how far an event is.
CUresult refuse_to_tell(Driver& driver, const Event& event) {
  if (event.capture != nullptr) {
    event.capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return driver.streams.refuse_while_capturing();
}

}  // namespace

FAKE_CUDA_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return with_context("cuEventCreate", [&](Driver& driver, Context& context) {
    if (event == nullptr || (flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    *event = new_handle<CUevent>();
    driver.events[*event] = {.context = context.handle};
    ++driver.ledger.own().events;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
  return with_event("cuEventDestroy", handle, [&](Driver& driver, Context&, Event&) {
    driver.events.erase(handle);
    --driver.ledger.own().events;
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return with_event("cuEventRecord", handle, [&](Driver& driver, Context& context, Event& event) {
    Stream* const stream = driver.streams.find(stream_handle, context.handle);
    if (stream == nullptr || stream->context != event.context) return CUDA_ERROR_INVALID_HANDLE;
    Use use{};
    if (const CUresult refused = driver.streams.begin_use(*stream, use); refused != CUDA_SUCCESS)
      return refused;
    event.capture = stream->capture;
    if (use == Use::kRun) event.point = driver.streams.add(*stream, {}, {});
    return CUDA_SUCCESS;
  });
}

FAKE_CUDA_EXPORT CUresult cuEventQuery(CUevent handle) {
  return with_event("cuEventQuery", handle, [&](Driver& driver, Context&, Event& event) {
    if (const CUresult refused = refuse_to_tell(driver, event); refused != CUDA_SUCCESS)
      return refused;
    return driver.scheduler.passed(event.point) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

FAKE_CUDA_EXPORT CUresult cuEventSynchronize(CUevent handle) {
  Point point;
  CUcontext its_context = nullptr;
  const CUresult result =
      with_event("cuEventSynchronize", handle, [&](Driver& driver, Context& context, Event& event) {
        if (const CUresult refused = refuse_to_tell(driver, event); refused != CUDA_SUCCESS)
          return refused;
        point = event.point;
        its_context = context.handle;
        return CUDA_SUCCESS;
      });
  return its_context == nullptr ? result : wait_for(point, its_context);
}

}  // namespace spdld::fake_cuda

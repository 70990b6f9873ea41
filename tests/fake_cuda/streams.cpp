// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/streams.h"

#include <algorithm>

#include "tests/fake_cuda/handles.h"

namespace spdld::fake_cuda {
namespace {

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool forbids_unsafe_calls(const Capture& capture) {
  if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id())
    return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) {
  return std::exchange(capture_mode, mode);
}

Stream* Streams::find(CUstream handle, CUcontext context) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    const auto known = legacy_.find(context);
    if (known == legacy_.end()) {
      Stream& stream = open(context, true, false);
      legacy_[context] = stream.handle;
      return &stream;
    }
    handle = known->second;
  } else if (handle == CU_STREAM_PER_THREAD) {
    const std::pair key(context, std::this_thread::get_id());
    const auto known = per_thread_.find(key);
    if (known == per_thread_.end()) {
      Stream& stream = open(context, false, true);
      per_thread_[key] = stream.handle;
      return &stream;
    }
    handle = known->second;
  }
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : &found->second;
}

void Streams::destroy(const Stream& stream) {
  if (stream.capture != nullptr) stream.capture->invalidated = true;
  streams_.erase(stream.handle);
}

std::uint64_t Streams::destroy_all(CUcontext context) {
  const auto of_context = [&](const auto& entry) { return entry.second.context == context; };
  const std::uint64_t own_ones =
      std::erase_if(per_thread_, [&](const auto& entry) { return entry.first.first == context; }) +
      legacy_.erase(context);
  return std::erase_if(streams_, of_context) - own_ones;
}

Point Streams::add(const Stream& stream, std::vector<Point> after, std::function<void()> run,
                   bool long_running) {
  for (const auto& [handle, other] : streams_) {
    if (other.context != stream.context) continue;
    if ((stream.legacy && other.blocking) || (stream.blocking && other.legacy))
      after.push_back(scheduler_.last(other.queue));
  }
  return scheduler_.add(stream.queue, std::move(after), std::move(run), long_running);
}

CUresult Streams::begin_use(Stream& stream, Use& use) {
  use = Use::kRun;
  if (captured_implicitly(stream)) {
    for (auto& [handle, other] : streams_) {
      if (other.context == stream.context && other.blocking && other.capture != nullptr)
        other.capture->invalidated = true;
    }
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream.capture == nullptr) return CUDA_SUCCESS;
  use = Use::kCaptured;
  return stream.capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult Streams::begin_capture(Stream& stream, CUstreamCaptureMode mode) {
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture =
      std::make_shared<Capture>(Capture{stream.handle, mode, std::this_thread::get_id()});
  return CUDA_SUCCESS;
}

CUresult Streams::end_capture(Stream& stream) {
  const CapturePtr capture = stream.capture;
  if (capture == nullptr || capture->origin != stream.handle) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->thread != std::this_thread::get_id() &&
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  for (auto& [handle, other] : streams_) {
    if (other.capture == capture) other.capture = nullptr;
  }
  return capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

bool Streams::captured_implicitly(const Stream& stream) const {
  return stream.legacy && std::any_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
           const Stream& other = entry.second;
           return other.context == stream.context && other.blocking && other.capture != nullptr;
         });
}

CUresult Streams::refuse_while_capturing() {
  CUresult result = CUDA_SUCCESS;
  for (auto& [handle, stream] : streams_) {
    if (stream.capture == nullptr || !forbids_unsafe_calls(*stream.capture)) continue;
    stream.capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

Stream& Streams::open(CUcontext context, bool legacy, bool blocking) {
  const auto handle = new_handle<CUstream>();
  return streams_[handle] = {handle, context, legacy, blocking, scheduler_.open(context), nullptr};
}

}  // namespace spdld::fake_cuda

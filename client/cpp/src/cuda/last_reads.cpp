// SPDX-License-Identifier: Apache-2.0
#include "cuda/last_reads.h"

#include <cstddef>

namespace spdld::client::cuda {

CUstream Reader::seen_from_here() const {
  const bool is_others = stream == CU_STREAM_PER_THREAD && thread != std::this_thread::get_id();
  return is_others ? CU_STREAM_LEGACY : stream;
}

bool Reader::is_same(const Reader& other) const {
  return stream == other.stream && (stream != CU_STREAM_PER_THREAD || thread == other.thread);
}

bool LastReads::note(Device& device) {
  for (std::size_t i = 0; i < unnoted_.size();) {
    const Reader& reader = unnoted_[i];
    CUstream const stream = reader.seen_from_here();
    if (device.is_capturing(stream)) {
      ++i;
      continue;
    }
    // The legacy stream in another one's place waits for that one, and may say nothing of it.
    if (stream != reader.stream || !device.is_idle(stream)) {
      EventPtr event = device.event();
      device.check(device.functions().EventRecord(event->get(), stream),
                   "recording how far a stream is that reads a batch");
      events_.push_back(std::move(event));
    }
    unnoted_.erase(unnoted_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return is_noted();
}

void LastReads::wait_on(const Device& device, CUstream stream) const {
  for (const EventPtr& event : events_)
    device.check(device.functions().StreamWaitEvent(stream, event->get(), 0),
                 "waiting for what read a batch");
}

bool LastReads::is_over(const Device& device) {
  while (!events_.empty()) {
    const CUresult result = device.functions().EventQuery(events_.back()->get());
    if (result == CUDA_ERROR_NOT_READY) return false;
    device.check(result, "asking whether a batch has been read");
    events_.pop_back();
  }
  return true;
}

void LastReads::wait(const Device& device) const {
  for (const EventPtr& event : events_) (void)device.functions().EventSynchronize(event->get());
}

}  // namespace spdld::client::cuda

// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_buffers.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace spdld::client::cuda {
namespace {

// Sizes of batches whose rows differ in length are alike to this.
constexpr std::uint64_t kGranule = 2 << 20;

}  // namespace

DeviceBuffers::~DeviceBuffers() { free_idle(); }

void DeviceBuffers::free_idle() {
  const Current current(*device_);
  if (!current) return;
  std::vector<Buffer> idle;
  {
    const std::lock_guard lock(mutex_);
    // A stream that was captured may read such a one yet, in an order that is not known here.
    const auto noted = [](const Buffer& buffer) { return buffer.unnoted.empty(); };
    const auto first = std::partition(idle_.begin(), idle_.end(), std::not_fn(noted));
    idle.assign(std::make_move_iterator(first), std::make_move_iterator(idle_.end()));
    idle_.erase(first, idle_.end());
  }
  for (const Buffer& buffer : idle) free(buffer);
}

DeviceBuffers::Buffer DeviceBuffers::take(std::uint64_t bytes, CUstream stream) {
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    // The one that was given back first has the least to wait for.
    auto found = idle_.begin();
    for (; found != idle_.end(); ++found) {
      if (found->bytes >= bytes && is_noted(*found)) break;
    }
    if (found == idle_.end())
      found = std::find_if(idle_.begin(), idle_.end(), [&](const Buffer& idle) {
        return idle.bytes < bytes && idle.unnoted.empty();
      });
    if (found != idle_.end()) {
      buffer = std::move(*found);
      idle_.erase(found);
    }
    ++taken_;
  }
  try {
    if (buffer.bytes < bytes) {
      if (buffer.address != 0) free(buffer);
      buffer = {};
      buffer = allocate(bytes);
    }
    for (const EventPtr& event : buffer.read)
      device_->check(device_->functions().StreamWaitEvent(stream, event->get(), 0),
                     "waiting for what read a batch");
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --taken_;
    if (buffer.address != 0) idle_.push_back(std::move(buffer));
    throw;
  }
  buffer.read.clear();
  return buffer;
}

void DeviceBuffers::give_back(Buffer buffer, const std::vector<CUstream>& readers) {
  const Current current(*device_);
  const std::lock_guard lock(mutex_);
  --taken_;
  if (!current) return;  // the process ends
  try {
    (void)note(buffer, readers);
  } catch (const std::exception&) {
    // Such a stream is gone, or the device is: what it has to do yet is not known, and freeing
    // waits for all of it.
    free(buffer);
    return;
  }
  idle_.push_back(std::move(buffer));
}

std::uint32_t DeviceBuffers::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

bool DeviceBuffers::note(Buffer& buffer, const std::vector<CUstream>& readers) {
  for (CUstream reader : readers) {
    if (device_->is_capturing(reader)) {
      // An event that is recorded now would be part of the graph.
      buffer.unnoted.push_back(reader);
      continue;
    }
    EventPtr event = device_->event();
    device_->check(device_->functions().EventRecord(event->get(), reader), "recording an event");
    buffer.read.push_back(std::move(event));
  }
  return buffer.unnoted.empty();
}

bool DeviceBuffers::is_noted(Buffer& buffer) {
  if (buffer.unnoted.empty()) return true;
  Buffer noted = buffer;
  noted.unnoted.clear();
  (void)note(noted, buffer.unnoted);
  buffer = std::move(noted);  // a stream that cannot be asked stays one that is not noted
  return buffer.unnoted.empty();
}

DeviceBuffers::Buffer DeviceBuffers::allocate(std::uint64_t bytes) {
  Buffer buffer;
  buffer.bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  device_->check(device_->functions().MemAlloc(&buffer.address, buffer.bytes),
                 "taking device memory for a batch");
  return buffer;
}

void DeviceBuffers::free(const Buffer& buffer) { device_->functions().MemFree(buffer.address); }

}  // namespace spdld::client::cuda

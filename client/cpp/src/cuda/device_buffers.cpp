// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_buffers.h"

#include <algorithm>
#include <exception>
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
    std::vector<Buffer> kept;
    for (Buffer& buffer : idle_) (is_noted(buffer) ? idle : kept).push_back(std::move(buffer));
    idle_ = std::move(kept);
  }
  for (const Buffer& buffer : idle) free(buffer);
}

// False: a stream that reads it is being captured, in an order that is not known here.
bool DeviceBuffers::is_noted(Buffer& buffer) const {
  try {
    return buffer.reads.note(*device_);
  } catch (const std::exception&) {
    return true;  // such a stream is gone, or the device is, and freeing waits for all that it does
  }
}

DeviceBuffers::Buffer DeviceBuffers::take(std::uint64_t bytes, CUstream stream) {
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    // The one that was given back first has the least to wait for.
    auto found = idle_.begin();
    for (; found != idle_.end(); ++found) {
      if (found->bytes >= bytes && found->reads.note(*device_)) break;
    }
    if (found == idle_.end())
      found = std::find_if(idle_.begin(), idle_.end(), [&](const Buffer& idle) {
        return idle.bytes < bytes && idle.reads.is_noted();
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
    buffer.reads.wait_on(*device_, stream);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --taken_;
    if (buffer.address != 0) idle_.push_back(std::move(buffer));
    throw;
  }
  buffer.reads = {};
  return buffer;
}

void DeviceBuffers::give_back(Buffer buffer, std::vector<Reader> readers) {
  const Current current(*device_);
  const std::lock_guard lock(mutex_);
  --taken_;
  if (!current) return;  // the process ends
  buffer.reads = LastReads(std::move(readers));
  try {
    (void)buffer.reads.note(*device_);
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

DeviceBuffers::Buffer DeviceBuffers::allocate(std::uint64_t bytes) {
  Buffer buffer;
  buffer.bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  device_->check(device_->functions().MemAlloc(&buffer.address, buffer.bytes),
                 "taking device memory for a batch");
  return buffer;
}

void DeviceBuffers::free(const Buffer& buffer) { device_->functions().MemFree(buffer.address); }

}  // namespace spdld::client::cuda

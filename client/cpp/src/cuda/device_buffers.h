// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device.h"

namespace spdld::client::cuda {

// Device memory that batches are copied to, used again and again. Thread-safe.
class DeviceBuffers {
 public:
  struct Buffer {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    // These must have passed before it is written to again: they follow the work that read it last.
    std::vector<EventPtr> read = {};
    // Streams that read it and have no such event yet: they were being captured.
    std::vector<CUstream> unnoted = {};
  };

  explicit DeviceBuffers(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~DeviceBuffers();

  // A buffer of at least so many bytes, for work on `stream` alone, which is made to wait until all
  // that read it before is over. Throws DeviceError.
  Buffer take(std::uint64_t bytes, CUstream stream);
  // Given back when the last use of it has been put on these streams.
  void give_back(Buffer buffer, const std::vector<CUstream>& readers);
  std::uint32_t taken() const;
  // Frees those that are not taken, which waits for what reads them.
  void free_idle();

 private:
  // Notes on the streams where they are by now. False: one of them is captured.
  bool note(Buffer& buffer, const std::vector<CUstream>& readers);
  // Tries again to note those of its readers that were captured. False: one still is.
  bool is_noted(Buffer& buffer);
  Buffer allocate(std::uint64_t bytes);
  void free(const Buffer& buffer);

  const std::shared_ptr<Device> device_;
  mutable std::mutex mutex_;
  std::uint32_t taken_ = 0;   // guarded by mutex_
  std::vector<Buffer> idle_;  // likewise; the one given back last comes last
};

}  // namespace spdld::client::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device.h"
#include "cuda/last_reads.h"

namespace spdld::client::cuda {

// Device memory that batches are copied to, used again and again. Thread-safe.
class DeviceBuffers {
 public:
  struct Buffer {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    LastReads reads = {};  // these must be over before it is written to again
  };

  explicit DeviceBuffers(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~DeviceBuffers();

  // A buffer of at least so many bytes, for work on `stream` alone, which is made to wait until all
  // that read it before is over. Throws DeviceError.
  Buffer take(std::uint64_t bytes, CUstream stream);
  // Given back when the last use of it has been put on these streams.
  void give_back(Buffer buffer, std::vector<Reader> readers);
  std::uint32_t taken() const;
  // Frees those that are not taken, which waits for what reads them; not those that a stream reads
  // which is being captured.
  void free_idle();

 private:
  Buffer allocate(std::uint64_t bytes);
  void free(const Buffer& buffer);
  bool is_noted(Buffer& buffer) const;

  const std::shared_ptr<Device> device_;
  mutable std::mutex mutex_;
  std::uint32_t taken_ = 0;   // guarded by mutex_
  std::vector<Buffer> idle_;  // likewise; the one given back last comes last
};

}  // namespace spdld::client::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "cuda/last_reads.h"
#include "device_copies.h"

namespace spdld::client::cuda {

// A batch on a device that knows which streams it was handed to. Thread-safe.
class HandedBatch : public DeviceBatch {
 public:
  int ordinal() const override { return device_->ordinal(); }
  void make_ready(std::uintptr_t stream) override;
  void record_stream(std::uintptr_t stream) override;
  void read(const std::byte* from, std::uint64_t bytes, std::byte* to) override;

 protected:
  explicit HandedBatch(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() const { return *device_; }
  // Has the stream wait until the values are there. Throws DeviceError.
  virtual void await_values(CUstream stream) const = 0;
  // The streams that it was handed to. For its destruction.
  std::vector<Reader> take_readers() { return std::move(readers_); }

 private:
  CUstream usable(std::uintptr_t stream) const;
  // Has the stream wait for those that the batch was handed to and that may write to it.
  void await_writers(CUstream stream);
  void add_reader(CUstream stream);

  const std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::vector<Reader> readers_;  // guarded by mutex_ until the batch is destroyed
};

}  // namespace spdld::client::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace spdld::client {

struct BatchState;

// The device memory of one batch. While it lives, nothing else is written there; what is written
// there afterwards waits for what the streams had to do that it was handed to. Thread-safe. In a
// forked child it is not there, and destroying it does nothing.
class DeviceBatch {
 public:
  virtual ~DeviceBatch() = default;
  virtual int ordinal() const = 0;  // as this process counts devices
  // Whether it is memory of the daemon's, which others may read as well.
  virtual bool is_read_only() const = 0;
  // Work that the stream is given from now on finds the values there, and the stream counts as one
  // that reads them. A stream is a CUstream; 0, 1: the legacy default stream, 2: that of the
  // thread. Throws LeaseError while the stream is captured into a graph, DeviceError if the device
  // fails.
  virtual void make_ready(std::uintptr_t stream) = 0;
  // The stream reads the values, and has waited for them in a way of its own. Throws likewise.
  virtual void record_stream(std::uintptr_t stream) = 0;
  // Copies values of the batch to main memory, as the streams leave them that it was handed to, and
  // waits until they are there. Throws likewise.
  virtual void read(const std::byte* from, std::uint64_t bytes, std::byte* to) = 0;
};

// Brings batches from their slots to the device, ahead of their reader. Used by the loader's
// thread alone. Copies of one loader run one after the other, on a stream of its own.
class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  // Whether the batch may be begun: fewer than `most` are on the device, or none of it goes there.
  virtual bool has_room(const BatchState& batch, std::uint32_t most) const = 0;
  // Begins to copy the values of the fields that wire::goes_to_device() names, which lie on the
  // device from then on. Shares the batch's lease until they have been read. Throws DeviceError.
  virtual void begin(BatchState& batch) = 0;
  // Lets go of the slots that have been read. Throws DeviceError if the device fails.
  virtual void reap() = 0;
  // Waits for the oldest copy that is under way, and lets go of its slot. False: there is none.
  virtual bool await_one() = 0;
  // Waits for all of them, and lets go of their slots. A device that has failed reads none.
  virtual void finish() = 0;
  // Frees the device memory that no batch lies in.
  virtual void free_idle() = 0;

  virtual std::uint64_t staged() const = 0;           // batches that went by a buffer of ours
  virtual const std::string& staged_why() const = 0;  // the driver's reason for it
};

}  // namespace spdld::client

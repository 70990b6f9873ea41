// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device_copies.h"
#include "posix/unique_fd.h"
#include "spdld/wire.h"

namespace spdld::client {

class Lease;

// Memory of a daemon's on the loader's device, mapped into this process. It is unmapped when the
// loader and the last batch in it have let go of it and no stream reads it any more. Thread-safe.
// In a forked child it is not there, and destroying it does nothing.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;
  virtual const std::byte* base() const = 0;  // an address of the device
  virtual std::uint64_t total_bytes() const = 0;
};

// Batches that lie in such memory, and the leases of those that were let go of while streams read
// them. Used by the loader's thread alone, but for the batches that it makes.
class DeviceArenas {
 public:
  // Waits as close() does.
  virtual ~DeviceArenas() = default;

  // Of the device, as nvidia-smi prints it: "GPU-…", "MIG-…". Empty where the driver cannot map
  // memory of other processes' there.
  virtual const std::string& uuid() const = 0;
  // Throws ConnectionError if the daemon's memory makes no sense, DeviceError if the device fails.
  // Nothing is left of it then.
  virtual std::shared_ptr<DeviceArena> map(UniqueFd fd, const wire::DeviceArenaFrame& frame) = 0;
  // A batch whose values are complete there. Its share of the lease ends once it has been destroyed
  // and the streams are through that it was handed to: reap() sees to that.
  virtual std::shared_ptr<DeviceBatch> batch(std::shared_ptr<DeviceArena> arena,
                                             std::shared_ptr<Lease> lease) = 0;

  // Ends the leases that no stream reads under any more. Throws DeviceError.
  virtual void reap() = 0;
  // Leases that end when streams have come further.
  virtual std::uint32_t draining() const = 0;
  // Leases of batches that were let go of while a stream of theirs was being captured: when they
  // can end shows after the capture.
  virtual std::uint32_t captured() const = 0;
  // Waits for the streams, and ends the leases. A batch that is let go of later waits likewise.
  virtual void close() = 0;
};

}  // namespace spdld::client

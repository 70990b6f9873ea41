// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "delivery/arena.h"
#include "spdld/wire.h"

// The memory of GPUs, as far as batches are delivered there.
namespace spdld::delivery {

// Memory of a GPU that consumers map. Theirs is still valid when this is gone: each holds a
// reference of its own. Its part of the budget ends with it.
class DeviceArena {
 public:
  virtual ~DeviceArena() = default;
  virtual wire::DeviceMemoryKind kind() const = 0;
  virtual std::uint64_t total_bytes() const = 0;
  // To be sent to consumers.
  virtual int client_fd() const = 0;
};

// The slots of an arena in main memory, as a GPU reads them by itself: each is made ready at its
// first copy. Dies before the arena and on the device's thread, once its copies are over. GPUs that
// copy from one arena share what is registered.
class PinnedArena {
 public:
  virtual ~PinnedArena() = default;
};

// Where a batch has its values on a GPU, in the memory there that belongs to its arena.
struct DevicePlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// What a device copies for one batch. All that it refers to lives until it is over.
struct DeviceCopy {
  struct Part {
    const std::byte* from = nullptr;  // in the slot
    std::uint64_t to = 0;             // from the device arena's first byte
    std::uint64_t bytes = 0;
  };
  PinnedArena* pinned = nullptr;
  std::uint32_t slot = 0;
  DeviceArena* to = nullptr;
  std::vector<Part> parts;
  // Asked by the device's thread before it begins; empty: it is wanted. False: nobody wants the
  // batch there any more, and its end has been seen to: nothing is copied, `done` is not called.
  std::function<bool()> wanted = {};
  // What else belongs to the batch, done by the device's thread meanwhile; may be empty.
  std::function<Status()> beside;
};

// One GPU, for as long as somebody has it: its context is begun with the first of them, and ended
// some time after the last. Copies run one after the other, on a thread and a stream of the
// device's. Thread-safe; no call waits for the device, or for its driver, but allocate().
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual const std::string& uuid() const = 0;  // as nvidia-smi prints it
  virtual const std::string& name() const = 0;  // "NVIDIA H100 80GB HBM3"

  // kResourceExhausted, with both figures, when the budget or the GPU is full now;
  // kFailedPrecondition when so much never fits. Under no lock: the driver may take any time.
  virtual Result<std::unique_ptr<DeviceArena>> allocate(std::uint64_t bytes) = 0;
  virtual std::unique_ptr<PinnedArena> pin(Arena& arena) = 0;
  // `done` is called on the device's thread, once all of it lies there or why it does not.
  virtual void copy(DeviceCopy copy, std::function<void(const Status&)> done) = 0;
  // On the device's thread, once all that it was given before is begun. Does not wait for copies
  // that are under way: what they refer to is let go by their `done`, or later.
  virtual void post(std::function<void()> task) = 0;
};

using DeviceMemoryPtr = std::shared_ptr<DeviceMemory>;

// What the daemon knows of one GPU.
struct DeviceFacts {
  std::string uuid;
  std::string name;
  bool mig = false;                // an instance of a GPU that is cut into several
  std::string compute_mode;        // "default", "exclusive process", "prohibited"
  std::uint64_t total_bytes = 0;   // of its memory
  std::string why_not;             // batches cannot be delivered to it; empty: they can
  std::string why_no_pinning;      // loaders there copy by a buffer; empty: from the slots
  bool context = false;            // the daemon has one there now
  std::uint64_t arena_bytes = 0;   // of the daemon's arenas there now
  std::uint64_t budget_bytes = 0;  // that these may take
};

// All GPUs of the machine that the daemon sees. Owned by the daemon; outlives what it opens.
class Devices {
 public:
  virtual ~Devices() = default;
  // kFailedPrecondition, with the way out, if batches cannot be delivered to such a GPU. Begins its
  // context if nobody has: that takes up to a second.
  virtual Result<DeviceMemoryPtr> open(const std::string& uuid) = 0;
  virtual std::vector<DeviceFacts> facts() const = 0;
  virtual std::uint64_t budget_bytes() const = 0;  // that arenas may take of each
  // Why there are none; empty if there are.
  virtual std::string why_none() const = 0;
  virtual std::string driver_text() const = 0;  // "CUDA 12.4"; empty: there is no driver
};

// The driver is looked for when it is first asked for. `budget_bytes`: what arenas may take of each
// GPU.
std::unique_ptr<Devices> find_devices(std::uint64_t budget_bytes);

}  // namespace spdld::delivery

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "delivery/device_memory.h"

namespace spdld::stream {

// Memory on GPUs for slots that are about to be made. A driver may take any time to give it, so
// that it is taken under no lock, by fill(), and handed out under locks, by take(): whoever makes
// slots tries it, and where the reserve lacks something, lets go of all locks, fills it, and tries
// again. What nobody took goes with the reserve, which therefore dies under no lock. One thread's
// at a time.
class DeviceReserve {
 public:
  // So many bytes on the GPU, or why fill() could not have them. kUnavailable: lacks() says so, and
  // fill() is to be called first.
  Result<std::shared_ptr<delivery::DeviceArena>> take(const delivery::DeviceMemoryPtr& gpu,
                                                      std::uint64_t bytes);
  bool lacks() const { return !lacking_.empty(); }
  // Waits for the driver.
  void fill();

 private:
  struct Wish {
    delivery::DeviceMemoryPtr gpu;
    std::uint64_t bytes = 0;
  };
  struct Filled {
    Wish wish;
    // Kept here, too, while slots have it: an attempt that fails gives back what it took.
    Result<std::shared_ptr<delivery::DeviceArena>> memory;
  };
  std::vector<Wish> lacking_;
  std::vector<Filled> filled_;
};

}  // namespace spdld::stream

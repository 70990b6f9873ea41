// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "delivery/device_memory.h"

namespace spdld::stream {

// Memory on GPUs for slots that are about to be made. A driver may take any time to give it: fill()
// takes it under no lock, and take() hands it out under locks. A caller that makes slots tries
// take(); where the reserve lacks memory it releases all locks, calls fill(), and tries again.
// Memory that was not handed out goes with the reserve, which is destroyed under no lock. Used by
// one thread at a time.
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
    // Kept here, too, while slots have it: an attempt that fails gives its memory back.
    Result<std::shared_ptr<delivery::DeviceArena>> memory;
  };
  std::vector<Wish> lacking_;
  std::vector<Filled> filled_;
};

}  // namespace spdld::stream

// SPDX-License-Identifier: Apache-2.0
#include "stream/device_reserve.h"

#include <utility>

namespace spdld::stream {

Result<std::shared_ptr<delivery::DeviceArena>> DeviceReserve::take(
    const delivery::DeviceMemoryPtr& gpu, std::uint64_t bytes) {
  for (const Filled& filled : filled_) {
    if (filled.wish.gpu != gpu || filled.wish.bytes != bytes) continue;
    if (!filled.memory) return filled.memory;
    if (filled.memory->use_count() == 1) return filled.memory;
  }
  lacking_.push_back({.gpu = gpu, .bytes = bytes});
  return error(Code::kUnavailable, "memory on " + gpu->name() + " has not been taken yet");
}

void DeviceReserve::fill() {
  for (Wish& wish : std::exchange(lacking_, {})) {
    auto memory = wish.gpu->allocate(wish.bytes);
    if (memory) {
      filled_.push_back({std::move(wish), std::shared_ptr(std::move(*memory))});
    } else {
      filled_.push_back({std::move(wish), tl::unexpected<Status>(std::move(memory).error())});
    }
  }
}

}  // namespace spdld::stream

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace spdld::engine {

// What the first batch of a stream that is being made waits for: its row that is least far.
enum class HeadWait {
  kBytes,   // its source has it, or has all rows that it may have
  kWorker,  // it can go on, and no worker has taken it up
  kMemory,  // there is no room to decode it
  kCalls,   // a function of the user's has it, or all rows that it may have
  kMaking,  // workers have all rows that are left
};
inline constexpr std::size_t kHeadWaits = 5;

// How long a stream's first batches waited for each, up to `at`; nothing of the time without a
// batch.
struct HeadTime {
  std::array<std::chrono::nanoseconds, kHeadWaits> waited{};
  std::chrono::steady_clock::time_point at = {};

  std::chrono::nanoseconds of(HeadWait wait) const {
    return waited[static_cast<std::size_t>(wait)];
  }
};

}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace spdld::stream {

// What a reader lacks that could be given another batch, and for which none is ready. The first
// ones are about its next batch while that is being made (engine/head_time.h).
enum class Shortage {
  kBytes,
  kWorker,
  kMemory,
  kCalls,
  kMaking,
  kSlot,     // it has all slots of its stream itself
  kReplica,  // other replicas of its shard have not read what is in the slots
  kJob,      // readers of other jobs have not
  kCopy,     // its batch is on the way to its GPU
  kEpoch,    // its next epoch is not open yet
  kChange,   // its job is being changed
  kDisk,     // where it is must be on disk first
};
inline constexpr std::size_t kShortages = 12;

using ShortageTime = std::array<std::chrono::nanoseconds, kShortages>;

}  // namespace spdld::stream

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

namespace spdld {

// How many tasks took how long: four buckets to each power of two of nanoseconds, so that
// percentiles are within 19 %. A value.
struct TimeHistogram {
  static constexpr int kBucketsPerOctave = 4;
  static constexpr int kBuckets = 44 * kBucketsPerOctave;

  std::array<std::uint64_t, kBuckets> tasks{};  // [bucket]

  static int bucket_of(std::uint64_t ns);
  void add(std::chrono::nanoseconds took, std::uint64_t count = 1);
  // What this share of the tasks took at most; 0 where there are none.
  std::chrono::nanoseconds percentile(double share) const;
  // How many tasks there are, and what they took together, in seconds.
  std::pair<std::uint64_t, double> total() const;
};

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#include "engine/stage_stats.h"

#include <algorithm>
#include <bit>

namespace spdld::engine {

int StageStats::bucket_of(std::uint64_t ns) {
  if (ns < kBucketsPerOctave) return static_cast<int>(ns);
  const int octave = std::bit_width(ns) - 1;
  const int part = static_cast<int>((ns >> (octave - 2)) & (kBucketsPerOctave - 1));
  return std::min((octave - 1) * kBucketsPerOctave + part, kBuckets - 1);
}

std::chrono::nanoseconds StageStats::bucket_value(int bucket) {
  if (bucket < kBucketsPerOctave) return std::chrono::nanoseconds(bucket);
  const int octave = bucket / kBucketsPerOctave + 1;
  const std::int64_t part = bucket % kBucketsPerOctave;
  const std::int64_t width = std::int64_t{1} << (octave - 2);
  return std::chrono::nanoseconds((kBucketsPerOctave + part) * width + width / 2);
}

void StageStats::end(std::chrono::nanoseconds took, std::chrono::nanoseconds waited, bool failed) {
  const auto took_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  tasks_.fetch_add(1, std::memory_order_relaxed);
  if (failed) failures_.fetch_add(1, std::memory_order_relaxed);
  busy_ns_.fetch_add(took_ns, std::memory_order_relaxed);
  wait_ns_.fetch_add(static_cast<std::uint64_t>(std::max<std::int64_t>(waited.count(), 0)),
                     std::memory_order_relaxed);
  histogram_[static_cast<std::size_t>(bucket_of(took_ns))].fetch_add(1, std::memory_order_relaxed);
}

StageSnapshot StageStats::snapshot() const {
  StageSnapshot result;
  result.tasks = tasks_.load(std::memory_order_relaxed);
  result.failures = failures_.load(std::memory_order_relaxed);
  result.busy = busy();
  result.wait = std::chrono::nanoseconds(wait_ns_.load(std::memory_order_relaxed));
  result.in_flight = in_flight_.load(std::memory_order_relaxed);

  std::array<std::uint64_t, kBuckets> counts{};
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    total += counts[i] = histogram_[i].load(std::memory_order_relaxed);
  const auto percentile = [&](double share) {
    const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(total));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      seen += counts[i];
      if (seen > wanted) return bucket_value(static_cast<int>(i));
    }
    return std::chrono::nanoseconds(0);
  };
  result.p50 = percentile(0.50);
  result.p99 = percentile(0.99);
  return result;
}

std::chrono::nanoseconds StageStats::mean_busy() const {
  const std::uint64_t tasks = tasks_.load(std::memory_order_relaxed);
  if (tasks == 0) return std::chrono::nanoseconds(0);
  return std::chrono::nanoseconds(busy_ns_.load(std::memory_order_relaxed) / tasks);
}

}  // namespace spdld::engine

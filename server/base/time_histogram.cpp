// SPDX-License-Identifier: Apache-2.0
#include "base/time_histogram.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace spdld {
namespace {

std::chrono::nanoseconds bucket_value(int bucket) {
  constexpr int kParts = TimeHistogram::kBucketsPerOctave;
  if (bucket < kParts) return std::chrono::nanoseconds(bucket);
  const int octave = bucket / kParts + 1;
  const std::int64_t part = bucket % kParts;
  const std::int64_t width = std::int64_t{1} << (octave - 2);
  return std::chrono::nanoseconds((kParts + part) * width + width / 2);
}

}  // namespace

int TimeHistogram::bucket_of(std::uint64_t ns) {
  if (ns < kBucketsPerOctave) return static_cast<int>(ns);
  const int octave = std::bit_width(ns) - 1;
  const int part = static_cast<int>((ns >> (octave - 2)) & (kBucketsPerOctave - 1));
  return std::min((octave - 1) * kBucketsPerOctave + part, kBuckets - 1);
}

void TimeHistogram::add(std::chrono::nanoseconds took, std::uint64_t count) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
  tasks[static_cast<std::size_t>(bucket_of(ns))] += count;
}

std::chrono::nanoseconds TimeHistogram::percentile(double share) const {
  const std::uint64_t all = std::accumulate(tasks.begin(), tasks.end(), std::uint64_t{0});
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(all));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    seen += tasks[i];
    if (seen > wanted) return bucket_value(static_cast<int>(i));
  }
  return std::chrono::nanoseconds(0);
}

std::pair<std::uint64_t, double> TimeHistogram::total() const {
  std::uint64_t all = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    all += tasks[i];
    seconds += static_cast<double>(tasks[i]) * 1e-9 *
               static_cast<double>(bucket_value(static_cast<int>(i)).count());
  }
  return {all, seconds};
}

}  // namespace spdld

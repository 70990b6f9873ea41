// SPDX-License-Identifier: Apache-2.0
#include "engine/stage_stats.h"

#include <algorithm>
#include <bit>
#include <numeric>

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

StageStats::Cell& StageStats::cell() {
  static std::atomic<std::size_t> threads{0};  // relaxed: any number will do
  thread_local const std::size_t kThread = threads.fetch_add(1, std::memory_order_relaxed);
  return cells_[kThread % kCells];
}

void StageStats::postpone(std::chrono::nanoseconds took) {
  Cell& to = cell();
  to.in_flight.fetch_sub(1, std::memory_order_relaxed);
  to.busy_ns.fetch_add(static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)),
                       std::memory_order_relaxed);
}

void StageStats::end(std::chrono::nanoseconds took, std::chrono::nanoseconds waited, Code why,
                     std::chrono::nanoseconds before) {
  const auto took_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
  const auto waited_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(waited.count(), 0));
  Cell& to = cell();
  to.in_flight.fetch_sub(1, std::memory_order_relaxed);
  to.tasks.fetch_add(1, std::memory_order_relaxed);
  if (why != Code::kOk)
    to.failures[static_cast<std::size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  to.busy_ns.fetch_add(took_ns, std::memory_order_relaxed);
  to.wait_ns.fetch_add(waited_ns, std::memory_order_relaxed);
  const std::uint64_t all_ns = took_ns + static_cast<std::uint64_t>(before.count());
  to.histogram[static_cast<std::size_t>(bucket_of(all_ns))].fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t StageStats::sum(std::atomic<std::uint64_t> Cell::*of) const {
  std::uint64_t total = 0;
  for (const Cell& cell : cells_) total += (cell.*of).load(std::memory_order_relaxed);
  return total;
}

std::uint64_t StageStats::tasks() const { return sum(&Cell::tasks); }

std::uint64_t StageStats::failures(Code why) const {
  std::uint64_t total = 0;
  for (const Cell& cell : cells_)
    total += cell.failures[static_cast<std::size_t>(why)].load(std::memory_order_relaxed);
  return total;
}

std::uint64_t StageStats::failures() const {
  std::uint64_t total = 0;
  for (std::size_t code = 0; code < kCodes; ++code) total += failures(static_cast<Code>(code));
  return total;
}

std::uint64_t StageStats::bytes() const { return sum(&Cell::bytes); }

std::chrono::nanoseconds StageStats::busy() const {
  return std::chrono::nanoseconds(sum(&Cell::busy_ns));
}

std::chrono::nanoseconds StageStats::wait() const {
  return std::chrono::nanoseconds(sum(&Cell::wait_ns));
}

StageStats::Histogram StageStats::histogram() const {
  Histogram counts{};
  for (const Cell& cell : cells_) {
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] += cell.histogram[i].load(std::memory_order_relaxed);
  }
  return counts;
}

std::chrono::nanoseconds StageStats::percentile(const Histogram& histogram, double share) {
  const std::uint64_t total = std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(total));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    seen += histogram[i];
    if (seen > wanted) return bucket_value(static_cast<int>(i));
  }
  return std::chrono::nanoseconds(0);
}

std::pair<std::uint64_t, double> StageStats::total(const Histogram& histogram) {
  std::uint64_t tasks = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    tasks += histogram[i];
    seconds += static_cast<double>(histogram[i]) * 1e-9 *
               static_cast<double>(bucket_value(static_cast<int>(i)).count());
  }
  return {tasks, seconds};
}

StageSnapshot StageStats::snapshot() const {
  std::int32_t in_flight = 0;
  for (const Cell& cell : cells_) in_flight += cell.in_flight.load(std::memory_order_relaxed);
  const Histogram counts = histogram();
  std::map<Code, std::uint64_t> by_code;
  std::uint64_t failed = 0;
  for (std::size_t i = 0; i < kCodes; ++i) {
    const auto code = static_cast<Code>(i);
    const std::uint64_t count = failures(code);
    if (count > 0) by_code[code] = count;
    failed += count;
  }
  return {.tasks = tasks(),
          .failures = failed,
          .failures_by_code = by_code,
          .busy = busy(),
          .wait = wait(),
          .in_flight = static_cast<std::uint32_t>(std::max(in_flight, 0)),
          .p50 = percentile(counts, 0.50),
          .p99 = percentile(counts, 0.99)};
}

std::chrono::nanoseconds StageStats::mean_busy() const {
  const std::uint64_t count = tasks();
  return count == 0 ? std::chrono::nanoseconds(0) : busy() / static_cast<std::int64_t>(count);
}

}  // namespace spdld::engine

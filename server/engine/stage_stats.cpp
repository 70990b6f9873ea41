// SPDX-License-Identifier: Apache-2.0
#include "engine/stage_stats.h"

#include <algorithm>

namespace spdld::engine {

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
  to.histogram[static_cast<std::size_t>(TimeHistogram::bucket_of(all_ns))].fetch_add(
      1, std::memory_order_relaxed);
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

TimeHistogram StageStats::histogram() const {
  TimeHistogram counts;
  for (const Cell& cell : cells_) {
    for (std::size_t i = 0; i < counts.tasks.size(); ++i)
      counts.tasks[i] += cell.histogram[i].load(std::memory_order_relaxed);
  }
  return counts;
}

StageSnapshot StageStats::snapshot() const {
  std::int32_t in_flight = 0;
  for (const Cell& cell : cells_) in_flight += cell.in_flight.load(std::memory_order_relaxed);
  const TimeHistogram counts = histogram();
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
          .p50 = counts.percentile(0.50),
          .p99 = counts.percentile(0.99)};
}

std::chrono::nanoseconds StageStats::mean_busy() const {
  const std::uint64_t count = tasks();
  return count == 0 ? std::chrono::nanoseconds(0) : busy() / static_cast<std::int64_t>(count);
}

}  // namespace spdld::engine

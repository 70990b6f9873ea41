// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/status.h"
#include "base/time_histogram.h"

namespace spdld::engine {

// What a stage did so far, and how it reads.
struct StageSnapshot {
  std::uint64_t tasks = 0;
  std::uint64_t failures = 0;
  std::map<Code, std::uint64_t> failures_by_code = {};
  std::chrono::nanoseconds busy{0};
  std::chrono::nanoseconds wait{0};
  std::uint32_t in_flight = 0;
  std::chrono::nanoseconds p50{0};
  std::chrono::nanoseconds p99{0};
};

// Counters of one stage: always on, a few relaxed adds per task, for the numbers are read one by
// one and need no order among each other. Threads count in different cells, so that none waits for
// another one's cache line. Any thread.
class StageStats {
 public:
  void begin() { cell().in_flight.fetch_add(1, std::memory_order_relaxed); }
  // It was begun and comes again: no task yet. `took`: what counts as busy all the same.
  void postpone(std::chrono::nanoseconds took = std::chrono::nanoseconds(0));
  // `why`: of a task that failed. `before`: what it took, too, and counts as busy already.
  void end(std::chrono::nanoseconds took, std::chrono::nanoseconds waited, Code why = Code::kOk,
           std::chrono::nanoseconds before = std::chrono::nanoseconds(0));
  // Adds bytes that the stage has brought.
  void add_bytes(std::uint64_t bytes) { cell().bytes.fetch_add(bytes, std::memory_order_relaxed); }

  StageSnapshot snapshot() const;
  TimeHistogram histogram() const;
  std::uint64_t tasks() const;
  std::uint64_t failures() const;
  std::uint64_t bytes() const;
  std::chrono::nanoseconds busy() const;
  std::chrono::nanoseconds wait() const;
  std::chrono::nanoseconds mean_busy() const;  // of a task; 0 before the first

 private:
  std::uint64_t failures(Code why) const;

  static constexpr std::size_t kCells = 16;
  static constexpr std::size_t kCodes = 16;
  // Not aligned to a cache line: what is allocated so for each run leaves gaps in the heap, and the
  // counters of two cells are apart by a histogram.
  struct Cell {
    std::atomic<std::uint64_t> tasks{0};
    std::atomic<std::uint64_t> bytes{0};
    std::array<std::atomic<std::uint64_t>, kCodes> failures{};  // [code]; of kOk: none
    std::atomic<std::uint64_t> busy_ns{0};
    std::atomic<std::uint64_t> wait_ns{0};
    std::atomic<std::int32_t> in_flight{0};  // less than 0 where tasks end that another one began
    std::array<std::atomic<std::uint64_t>, TimeHistogram::kBuckets> histogram{};
  };

  Cell& cell();
  std::uint64_t sum(std::atomic<std::uint64_t> Cell::*of) const;

  std::array<Cell, kCells> cells_;
};

}  // namespace spdld::engine

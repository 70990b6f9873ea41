// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"
#include "op/op_time.h"

namespace spdld::engine {

// Times the tasks of a plan on one row in kEach, so that it costs next to nothing. Counters are
// relaxed, as they need no order among each other. Any thread.
class OpTimes {
 public:
  static constexpr std::uint64_t kEach = 64;

  explicit OpTimes(const Plan& plan) : plan_(plan), tasks_(plan.tasks.size()) {}

  // A row's task took `all`, of which `decoding` went into reading the encoded bytes.
  void add(std::size_t task, std::chrono::nanoseconds all, std::chrono::nanoseconds decoding);

  // In the order in which a row's tasks are run. Decoding stands by itself where other ops follow
  // it.
  std::vector<OpTime> times() const;

 private:
  struct Task {
    std::atomic<std::uint64_t> rows{0};
    std::atomic<std::int64_t> all_ns{0};
    std::atomic<std::int64_t> decoding_ns{0};
  };

  const Plan& plan_;
  std::vector<Task> tasks_;
};

}  // namespace spdld::engine

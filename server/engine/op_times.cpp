// SPDX-License-Identifier: Apache-2.0
#include "engine/op_times.h"

#include <algorithm>

#include "base/clock.h"

namespace spdld::engine {

void OpTimes::add(std::size_t task, std::chrono::nanoseconds all,
                  std::chrono::nanoseconds decoding) {
  Task& of = tasks_[task];
  of.rows.fetch_add(1, std::memory_order_relaxed);
  of.all_ns.fetch_add(all.count(), std::memory_order_relaxed);
  of.decoding_ns.fetch_add(decoding.count(), std::memory_order_relaxed);
}

std::vector<OpTime> OpTimes::times() const {
  std::vector<OpTime> times;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Task& of = tasks_[i];
    const std::uint64_t rows = of.rows.load(std::memory_order_relaxed);
    if (rows == 0) continue;
    const std::chrono::nanoseconds all(of.all_ns.load(std::memory_order_relaxed));
    const std::chrono::nanoseconds decoding(of.decoding_ns.load(std::memory_order_relaxed));
    const std::string& field = plan_.task_arrays[i] ? plan_.arrays[*plan_.task_arrays[i]].name
                                                    : plan_.tensors[plan_.task_tensors[i]].name;
    const std::string& ops = plan_.task_ops[i];
    const std::size_t first = ops.find(kOpsJoin);
    if (first == std::string::npos || decoding.count() <= 0) {
      times.push_back({.field = field, .ops = ops, .rows = rows, .spent_s = in_seconds(all)});
      continue;
    }
    times.push_back({.field = field,
                     .ops = ops.substr(0, first),
                     .rows = rows,
                     .spent_s = in_seconds(decoding)});
    times.push_back({.field = field,
                     .ops = ops.substr(first + kOpsJoin.size()),
                     .rows = rows,
                     .spent_s = in_seconds(std::max(all - decoding, std::chrono::nanoseconds(0)))});
  }
  return times;
}

}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/stream_port.h"
#include "session/views.h"

namespace spdld::session {

// The samples of one job that could not be made, and how many of them may be replaced. The budget
// counts distinct items, so that a bad file costs once and not once an epoch. Thread-safe.
class FailureLog {
 public:
  static constexpr std::size_t kKept = 1000;

  // `replaced`: items that were replaced before a restart of the daemon.
  FailureLog(std::uint64_t budget, std::set<std::uint64_t> replaced)
      : budget_(budget), replaced_(std::move(replaced)) {}

  // Ok: a substitute may take its place. Over budget, the error names the item and the numbers.
  // `is_new` tells whether this item has not failed before.
  Status admit(const engine::SampleFailure& failure, bool& is_new);
  // A failure that ended a stream.
  void record(const engine::SampleFailure& failure);

  std::uint64_t budget() const { return budget_; }
  std::uint64_t replaced() const;
  std::vector<engine::SampleFailure> recent() const;

 private:
  const std::uint64_t budget_;
  mutable Mutex mutex_;
  std::set<std::uint64_t> replaced_ SPDLD_GUARDED_BY(mutex_);
  std::deque<engine::SampleFailure> recent_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session

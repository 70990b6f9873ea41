// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/stream_port.h"

namespace spdld::engine {

// A sample that could not be made.
struct FailedSample {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t item = 0;
  std::string uri;
  std::optional<std::uint64_t> replaced_by;  // the item that took its place

  friend bool operator==(const FailedSample&, const FailedSample&) = default;
};

struct FailureFacts {
  std::uint64_t unix_ms = 0;
  std::optional<FailedSample> sample;  // none: it was no single sample's fault
  std::string code;
  std::string message;
  bool ended_stream = false;  // those who read the stream were given nothing more

  friend bool operator==(const FailureFacts&, const FailureFacts&) = default;
};

// One failure of a job.
struct LoggedFailure {
  std::uint64_t number = 0;  // counts the job's failures, over restarts
  FailureFacts facts = {};

  friend bool operator==(const LoggedFailure&, const LoggedFailure&) = default;
};

// The samples of one job that could not be made, what ended its streams, and how many samples may
// be replaced. The budget counts distinct items, so that a bad file costs once and not once an
// epoch. Owned by its Job; thread-safe.
class FailureLog {
 public:
  static constexpr std::size_t kKept = 1000;

  // `replaced`: items that were replaced before a restart of the daemon; `last_number`: of the
  // failures that were kept then.
  FailureLog(std::uint64_t budget, std::set<std::uint64_t> replaced, std::uint64_t last_number)
      : budget_(budget), last_number_(last_number), replaced_(std::move(replaced)) {}

  // Ok: a substitute may take its place. Over budget, the error names the item and the numbers.
  // `is_new` tells whether this item has not failed before.
  Status admit(const SampleFailure& failure, bool& is_new);
  // What ended a stream. Several consumers may tell of the same.
  void record(const StreamFailure& failure);

  std::uint64_t budget() const { return budget_; }
  std::uint64_t replaced() const;
  // The latest kKept, oldest first.
  std::vector<LoggedFailure> recent() const;
  // Those of them behind `number`.
  std::vector<LoggedFailure> behind(std::uint64_t number) const;
  // Items that were replaced since this log was made, but for the first `known` of them.
  std::vector<std::uint64_t> replaced_behind(std::size_t known) const;
  // The message of what ended a stream last; empty: nothing has.
  std::string last_end() const;

 private:
  void add(FailureFacts facts) SPDLD_REQUIRES(mutex_);

  const std::uint64_t budget_;
  mutable Mutex mutex_;
  std::uint64_t last_number_ SPDLD_GUARDED_BY(mutex_);
  std::set<std::uint64_t> replaced_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> replaced_here_ SPDLD_GUARDED_BY(mutex_);  // of them, in order
  std::deque<LoggedFailure> recent_ SPDLD_GUARDED_BY(mutex_);
  std::string last_end_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::engine

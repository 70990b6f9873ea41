// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/rate_window.h"
#include "base/time_histogram.h"
#include "engine/run.h"

namespace spdld::session {

// The rates of a job in the last seconds: of its rows, and of each stage of its current run. Owned
// by the job, guarded by JobTable::mutex(); Reports adds the counters each second.
class JobRates {
 public:
  using RunPtr = std::shared_ptr<engine::Run>;

  // `rows`: all that the job's consumers were handed so far. `run`: that of the job's current
  // phase; each run has counters of its own.
  void add(std::chrono::nanoseconds now, std::uint64_t rows, const RunPtr& run);

  // What tasks of the last five to ten seconds took.
  struct Times {
    std::chrono::nanoseconds p50{0};
    std::chrono::nanoseconds p90{0};
    std::chrono::nanoseconds p99{0};
    // Tasks that took more than ten times p50: their share of all, and of the time.
    double slow = 0;
    double slow_time = 0;
  };
  struct Stage {
    double rows_per_s = 0;
    double busy = 0;     // rows that were in it at once, on average
    double waiting = 0;  // rows that waited for it, on average
    double failures_per_s = 0;
    double bytes_per_s = 0;
    std::optional<Times> times = std::nullopt;  // none: no task has ended of late
  };
  // None of these is known before a second look.
  std::optional<double> rows_per_s() const { return rows_.per_second(0); }
  std::optional<Stage> fetch(const RunPtr& run) const;
  std::optional<Stage> process(const RunPtr& run) const;
  // The run of the last add(), and rows that were being made for it at once; 0: not known.
  struct Making {
    std::weak_ptr<engine::Run> run;
    double rows = 0;
  };
  Making making() const;

 private:
  // All tasks of a stage up to some time.
  struct Taken {
    std::chrono::nanoseconds at{0};
    TimeHistogram fetch{};
    TimeHistogram process{};
  };

  static std::optional<Times> times(const engine::StageStats& stats, const TimeHistogram& before);
  // The rates of the stage with its counters from `first` on; none for a run that is not the one
  // now.
  std::optional<Stage> stage(const RunPtr& run, std::size_t first) const;
  bool is_now(const RunPtr& run) const {
    return !run_.owner_before(run) && !run.owner_before(run_);
  }

  RateWindow<1> rows_;
  // Of fetch, and then of process.
  enum Counter { kRows, kBusyNs, kWaitNs, kFailures, kBytes, kCounters };
  RateWindow<std::size_t{2} * kCounters> stages_;
  // Where `before_` was taken five seconds or more before the last add(), `later_` replaces it.
  Taken before_;
  Taken later_;
  std::weak_ptr<engine::Run> run_;  // never locked: its last owner must not be found here
};

}  // namespace spdld::session

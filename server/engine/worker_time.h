// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace spdld::engine {

// The reason for which workers sleep: at any time one for all of them. Where runs have several, the
// one that stands last here.
enum class Idle {
  kWork,        // there is no stream
  kSlot,        // no stream has a batch to make: its consumers have all that they may have
  kYield,       // nobody lacks a batch, and a core is left to the training
  kLeft,        // all that there is are rows that take long, and a worker is left to short ones
  kJobBound,    // a run has all the workers that its job may have
  kStageBound,  // ... or that its stage may have
  kMemory,      // rows wait for room to decode
  kCalls,       // functions of the users' own have all rows that they may have
  kBytes,       // the sources have all rows that they may have
};
inline constexpr std::size_t kIdles = 9;

// The time of all workers of a pool, which adds up: what a worker has spent since it began is in
// one of these.
struct WorkerTime {
  std::chrono::nanoseconds rows{0};     // making rows, with reading what is cached of their bytes
  std::chrono::nanoseconds batches{0};  // opening batches
  std::array<std::chrono::nanoseconds, kIdles> idle{};

  std::chrono::nanoseconds& of(Idle why) { return idle[static_cast<std::size_t>(why)]; }
  std::chrono::nanoseconds of(Idle why) const { return idle[static_cast<std::size_t>(why)]; }
};

// Keeps the workers' time. Owned by the executor, under its lock.
class WorkerClocks {
 public:
  explicit WorkerClocks(unsigned workers) : clocks_(workers) {}

  // By the worker's own thread, before all else, and after it.
  void begin(unsigned worker);
  void end(unsigned worker);
  // The time since the worker's last call was spent on that.
  void made_rows(unsigned worker) { pass(worker, time_.rows); }
  void opened_batch(unsigned worker) { pass(worker, time_.batches); }
  // Looking for work counts with the rows.
  void sleeps(unsigned worker);
  void wakes(unsigned worker);
  // From now on those that sleep do so for this reason.
  void idle_for(Idle why);
  int sleepers() const { return sleepers_; }

  // With the time of what is going on now.
  WorkerTime total() const;
  // Those that have begun and not ended.
  std::vector<pid_t> threads() const;
  // So long the others waited for a core.
  std::chrono::nanoseconds ended_waited() const { return ended_waited_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Clock {
    pid_t thread = 0;  // 0: it has not begun
    Time since;        // while it is awake
    bool asleep = false;
  };

  void pass(unsigned worker, std::chrono::nanoseconds& on);
  // The time of those that sleep, up to now.
  void pass_sleep(Time now);

  std::vector<Clock> clocks_;
  Idle why_ = Idle::kWork;
  int sleepers_ = 0;
  Time slept_since_;  // all of them
  WorkerTime time_;
  std::chrono::nanoseconds ended_waited_{0};
};

// So long threads of this process were ready to run and waited for a core, in all; none: the kernel
// does not tell.
std::optional<std::chrono::nanoseconds> waited_for_cores(std::span<const pid_t> threads);

}  // namespace spdld::engine

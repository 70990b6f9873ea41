// SPDX-License-Identifier: Apache-2.0
#include "engine/worker_time.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

namespace spdld::engine {

void WorkerClocks::begin(unsigned worker) {
  clocks_[worker] = {.thread = static_cast<pid_t>(::syscall(SYS_gettid)),
                     .since = std::chrono::steady_clock::now(),
                     .asleep = false};
}

void WorkerClocks::end(unsigned worker) {
  pass(worker, time_.rows);
  const pid_t thread = std::exchange(clocks_[worker].thread, 0);
  ended_waited_ += engine::waited_for_cores({&thread, 1}).value_or(std::chrono::nanoseconds(0));
}

void WorkerClocks::pass(unsigned worker, std::chrono::nanoseconds& on) {
  const Time now = std::chrono::steady_clock::now();
  on += now - std::exchange(clocks_[worker].since, now);
}

void WorkerClocks::pass_sleep(Time now) {
  time_.of(why_) += sleepers_ * (now - std::exchange(slept_since_, now));
}

void WorkerClocks::sleeps(unsigned worker) {
  pass(worker, time_.rows);
  pass_sleep(clocks_[worker].since);
  clocks_[worker].asleep = true;
  ++sleepers_;
}

void WorkerClocks::wakes(unsigned worker) {
  Clock& clock = clocks_[worker];
  clock.since = std::chrono::steady_clock::now();
  pass_sleep(clock.since);
  clock.asleep = false;
  --sleepers_;
}

void WorkerClocks::idle_for(Idle why) {
  if (why == why_) return;
  pass_sleep(std::chrono::steady_clock::now());
  why_ = why;
}

WorkerTime WorkerClocks::total() const {
  WorkerTime total = time_;
  const Time now = std::chrono::steady_clock::now();
  if (sleepers_ > 0) total.of(why_) += sleepers_ * (now - slept_since_);
  for (const Clock& clock : clocks_) {
    if (clock.thread != 0 && !clock.asleep) total.rows += now - clock.since;
  }
  return total;
}

std::vector<pid_t> WorkerClocks::threads() const {
  std::vector<pid_t> threads;
  for (const Clock& clock : clocks_) {
    if (clock.thread != 0) threads.push_back(clock.thread);
  }
  return threads;
}

std::optional<std::chrono::nanoseconds> waited_for_cores(std::span<const pid_t> threads) {
  std::chrono::nanoseconds sum{0};
  for (const pid_t thread : threads) {
    // Time on a core, time that it waited for one, and how often it had one.
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/schedstat");
    std::int64_t ran = 0;
    std::int64_t waited = 0;
    if (!(file >> ran >> waited)) return std::nullopt;
    sum += std::chrono::nanoseconds(waited);
  }
  return sum;
}

}  // namespace spdld::engine

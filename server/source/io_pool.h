// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace spdld::source {

// Work that may block on one device. Belongs to whoever submitted it and must live until run()
// returned nothing.
class IoTask {
 public:
  virtual ~IoTask() = default;

  // Called on one of the pool's threads, never twice at once. Nothing: done, and the pool never
  // touches the task again. A pause: call run() again after it; no thread is held meanwhile.
  // `stopped`: the pool is going down, so do not begin anything; a pause is then ignored.
  virtual std::optional<std::chrono::nanoseconds> run(bool stopped) = 0;

 private:
  friend class IoPool;
  dev_t device_ = 0;
  IoTask* next_ = nullptr;
  bool hastened_ = false;
};

// The threads on which reads may block. Made once by the daemon, outlives every source.
//
// No device can take all of them: a device may have at most half of the threads that the other
// devices leave, and always one. Of 16 threads a mount that hangs holds 8, a second one 4, and so
// on; what is healthy goes on. Devices take turns.
//
// submit() and hasten() are thread-safe. States: running, then stopped by stop() or the
// destructor: every task that waits gets run(true), later ones are refused. The destructor waits
// for calls of run() that are inside the kernel.
class IoPool {
 public:
  struct Options {
    int threads = 16;
    std::size_t max_tasks = 65536;  // waiting, paused and running together
  };

  explicit IoPool(Options options);
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  // kResourceExhausted: max_tasks are there already; kCancelled: stopped. The task is not taken
  // then.
  Status submit(dev_t device, IoTask& task) SPDLD_EXCLUDES(mutex_);

  // Ends the pause that a submitted task is in, or cancels the next one that it asks for.
  void hasten(IoTask& task) SPDLD_EXCLUDES(mutex_);

  void stop() SPDLD_EXCLUDES(mutex_);

  int threads() const { return static_cast<int>(threads_.size()); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // One device's tasks, first in first out.
  struct Lane {
    IoTask* head = nullptr;
    IoTask* tail = nullptr;
    int running = 0;
  };
  struct Paused {
    Time until;
    IoTask* task;
  };

  void work() SPDLD_EXCLUDES(mutex_);
  void run(IoTask& task) SPDLD_REQUIRES(mutex_);
  IoTask* take() SPDLD_REQUIRES(mutex_);
  bool may_run(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  bool work_waits() const SPDLD_REQUIRES(mutex_);
  void enqueue(IoTask& task) SPDLD_REQUIRES(mutex_);
  void end_pauses(Time now) SPDLD_REQUIRES(mutex_);
  void leave_lane(dev_t device) SPDLD_REQUIRES(mutex_);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  std::map<dev_t, Lane> lanes_ SPDLD_GUARDED_BY(mutex_);
  dev_t last_served_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::vector<Paused> paused_ SPDLD_GUARDED_BY(mutex_);  // a heap, the earliest first
  std::size_t tasks_ SPDLD_GUARDED_BY(mutex_) = 0;
  int running_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool stopped_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace spdld::source

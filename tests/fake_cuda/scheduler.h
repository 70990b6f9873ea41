// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/mutex.h"

namespace spdld::fake_cuda {

// How far the work of one stream is. Read and written under the scheduler's lock.
struct Progress {
  std::uint64_t added = 0;
  std::uint64_t done = 0;
};

// The first `number` pieces of a stream's work: an event holds one. Empty: nothing at all.
struct Point {
  std::shared_ptr<Progress> progress = nullptr;
  std::uint64_t number = 0;
};

// Runs the work of all streams of this process, of each stream in order: on one thread of its own,
// in an order across streams and with delays that a seed draws. Lives until the process ends.
// Thread-safe.
class Scheduler {
 public:
  // The work of one stream. A stream that is gone leaves it to be finished.
  class Queue;
  using QueuePtr = std::shared_ptr<Queue>;

  Scheduler(std::uint64_t seed, std::uint64_t lateness) : lateness_(lateness), draw_(seed) {}

  QueuePtr open(CUcontext context) SPDLD_EXCLUDES(mutex_);

  // Appends `run`, to be begun after all of `after` are done; `long_running`: on a thread of its
  // own. An empty `run` only marks its place.
  Point add(const QueuePtr& queue, std::vector<Point> after, std::function<void()> run,
            bool long_running = false) SPDLD_EXCLUDES(mutex_);
  // All that was added to it so far.
  Point last(const QueuePtr& queue) SPDLD_EXCLUDES(mutex_);

  bool passed(const Point& point) SPDLD_EXCLUDES(mutex_);
  void wait(const Point& point) SPDLD_EXCLUDES(mutex_);
  // Until none of the context's work is left.
  void wait_for_all(CUcontext context) SPDLD_EXCLUDES(mutex_);
  // Throws away what of the context's work has not begun; all of it counts as done. Returns when no
  // copy of it runs.
  void drop(CUcontext context) SPDLD_EXCLUDES(mutex_);

 private:
  struct Work;

  void run();
  QueuePtr next_ready() SPDLD_REQUIRES(mutex_);
  void finish(Queue& queue) SPDLD_REQUIRES(mutex_);
  bool is_passed(const Point& point) SPDLD_REQUIRES(mutex_);

  const std::uint64_t lateness_;
  Mutex mutex_;
  CondVar added_;
  CondVar done_;
  std::mt19937_64 draw_ SPDLD_GUARDED_BY(mutex_);
  bool started_ SPDLD_GUARDED_BY(mutex_) = false;
  std::uint64_t turn_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::vector<QueuePtr> busy_ SPDLD_GUARDED_BY(mutex_);  // with work that is not done
};

}  // namespace spdld::fake_cuda

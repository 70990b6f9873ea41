// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_cuda/scheduler.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace spdld::fake_cuda {
namespace {

// How long a turn takes in which nothing is due.
constexpr std::chrono::microseconds kIdleTurn{10};

}  // namespace

struct Scheduler::Work {
  std::uint64_t due_turn = 0;
  std::vector<Point> after = {};
  std::function<void()> run = {};
  bool long_running = false;
};

class Scheduler::Queue {
 public:
  explicit Queue(CUcontext its_context) : context(its_context) {}

  const CUcontext context;
  const std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  std::deque<Work> work;
  bool running = false;   // its first piece of work, which is no longer in `work`
  bool copying = false;   // likewise, and it is no long-running one
  bool given_up = false;  // what is running was dropped, and counts as done already
};

Scheduler::QueuePtr Scheduler::open(CUcontext context) { return std::make_shared<Queue>(context); }

Point Scheduler::add(const QueuePtr& queue, std::vector<Point> after, std::function<void()> run,
                     bool long_running) {
  const MutexLock lock(mutex_);
  if (!started_) {
    started_ = true;
    std::thread([this] { this->run(); }).detach();
  }
  if (queue->work.empty() && !queue->running) busy_.push_back(queue);
  const std::uint64_t late = lateness_ == 0 ? 0 : draw_() % (lateness_ + 1);
  queue->work.push_back({turn_ + late, std::move(after), std::move(run), long_running});
  added_.notify_all();
  return {queue->progress, ++queue->progress->added};
}

Point Scheduler::last(const QueuePtr& queue) {
  const MutexLock lock(mutex_);
  return {queue->progress, queue->progress->added};
}

bool Scheduler::passed(const Point& point) {
  const MutexLock lock(mutex_);
  return is_passed(point);
}

void Scheduler::wait(const Point& point) {
  const MutexLock lock(mutex_);
  while (!is_passed(point)) done_.wait(mutex_);
}

void Scheduler::wait_for_all(CUcontext context) {
  const MutexLock lock(mutex_);
  const auto of_context = [&](const QueuePtr& queue) { return queue->context == context; };
  while (std::any_of(busy_.begin(), busy_.end(), of_context)) done_.wait(mutex_);
}

void Scheduler::drop(CUcontext context) {
  const MutexLock lock(mutex_);
  std::erase_if(busy_, [&](const QueuePtr& queue) {
    if (queue->context != context) return false;
    queue->progress->done = queue->progress->added;
    queue->work.clear();
    queue->given_up = queue->running;
    return !queue->running;
  });
  done_.notify_all();
  added_.notify_all();
  // A copy that was cut off touches no memory any more, which its owner may give back at once.
  const auto copies = [&](const QueuePtr& queue) {
    return queue->context == context && queue->copying;
  };
  while (std::any_of(busy_.begin(), busy_.end(), copies)) done_.wait(mutex_);
}

void Scheduler::run() {
  mutex_.lock();
  for (;;) {
    const QueuePtr queue = next_ready();
    const std::uint64_t turn = turn_++;
    if (queue == nullptr) {
      const bool any_late = std::any_of(busy_.begin(), busy_.end(), [&](const QueuePtr& busy) {
        return !busy->work.empty() && busy->work.front().due_turn >= turn;
      });
      if (any_late) {
        added_.wait_for(mutex_, kIdleTurn);
      } else {
        added_.wait(mutex_);
      }
      continue;
    }
    const Work work = std::move(queue->work.front());
    queue->work.pop_front();
    queue->running = true;
    queue->copying = !work.long_running;
    mutex_.unlock();
    if (work.long_running) {
      std::thread([this, queue, run = work.run] {
        run();
        const MutexLock lock(mutex_);
        finish(*queue);
      }).detach();
      mutex_.lock();
    } else {
      if (work.run) work.run();
      mutex_.lock();
      finish(*queue);
    }
  }
}

Scheduler::QueuePtr Scheduler::next_ready() {
  std::vector<QueuePtr> ready;
  for (const QueuePtr& queue : busy_) {
    if (queue->running || queue->work.empty()) continue;
    const Work& next = queue->work.front();
    const auto is_done = [&](const Point& point)
                             SPDLD_REQUIRES(mutex_) { return is_passed(point); };
    if (next.due_turn <= turn_ && std::all_of(next.after.begin(), next.after.end(), is_done))
      ready.push_back(queue);
  }
  return ready.empty() ? nullptr : ready[draw_() % ready.size()];
}

void Scheduler::finish(Queue& queue) {
  queue.running = false;
  queue.copying = false;
  if (!std::exchange(queue.given_up, false)) ++queue.progress->done;
  if (queue.work.empty())
    std::erase_if(busy_, [&](const QueuePtr& busy) { return busy.get() == &queue; });
  done_.notify_all();
  added_.notify_all();
}

bool Scheduler::is_passed(const Point& point) {
  return point.progress == nullptr || point.progress->done >= point.number;
}

}  // namespace spdld::fake_cuda

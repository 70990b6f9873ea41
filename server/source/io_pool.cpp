// SPDX-License-Identifier: Apache-2.0
#include "source/io_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace spdld::source {
namespace {

// Lanes of devices that went away are dropped beyond this many; a few are kept, so that a lane that
// runs empty between two reads is not made anew for each.
constexpr std::size_t kKeptLanes = 64;

constexpr auto kLatestFirst = [](const auto& a, const auto& b) { return a.until > b.until; };

}  // namespace

IoPool::IoPool(Options options) : options_(options) {
  SPDLD_CHECK(options.threads > 0 && options.max_tasks > 0);
  threads_.reserve(static_cast<std::size_t>(options.threads));
  for (int i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

IoPool::~IoPool() { stop(); }

Status IoPool::submit(dev_t device, IoTask& task) {
  MutexLock lock(mutex_);
  if (stopped_) return Status(Code::kCancelled, "the I/O pool has been stopped");
  if (tasks_ >= options_.max_tasks) {
    return Status(Code::kResourceExhausted, "the I/O pool has all the " +
                                                std::to_string(options_.max_tasks) +
                                                " reads it takes; ask for fewer at once");
  }
  ++tasks_;
  task.device_ = device;
  task.hastened_ = false;
  enqueue(task);
  changed_.notify_one();
  return {};
}

void IoPool::hasten(IoTask& task) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(paused_.begin(), paused_.end(),
                                  [&task](const Paused& paused) { return paused.task == &task; });
  if (found == paused_.end()) {
    task.hastened_ = true;
    return;
  }
  paused_.erase(found);
  std::make_heap(paused_.begin(), paused_.end(), kLatestFirst);
  enqueue(task);
  changed_.notify_one();
}

void IoPool::stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void IoPool::enqueue(IoTask& task) {
  task.next_ = nullptr;
  Lane& lane = lanes_[task.device_];
  (lane.head == nullptr ? lane.head : lane.tail->next_) = &task;
  lane.tail = &task;
}

void IoPool::end_pauses(Time now) {
  while (!paused_.empty() && (stopped_ || paused_.front().until <= now)) {
    IoTask& task = *paused_.front().task;
    std::pop_heap(paused_.begin(), paused_.end(), kLatestFirst);
    paused_.pop_back();
    enqueue(task);
  }
}

bool IoPool::may_run(const Lane& lane) const {
  if (lane.head == nullptr) return false;
  const int others = running_ - lane.running;
  return stopped_ || lane.running < std::max(1, (options_.threads - others) / 2);
}

IoTask* IoPool::take() {
  // Around the lanes, from the one after that which was served last.
  auto lane = lanes_.upper_bound(last_served_);
  for (std::size_t i = 0; i < lanes_.size(); ++i, ++lane) {
    if (lane == lanes_.end()) lane = lanes_.begin();
    if (!may_run(lane->second)) continue;
    IoTask* task = lane->second.head;
    lane->second.head = task->next_;
    ++lane->second.running;
    ++running_;
    last_served_ = lane->first;
    return task;
  }
  return nullptr;
}

bool IoPool::work_waits() const {
  if (!paused_.empty()) return true;
  for (const auto& [device, lane] : lanes_) {
    if (may_run(lane)) return true;
  }
  return false;
}

void IoPool::leave_lane(dev_t device) {
  const auto lane = lanes_.find(device);
  --lane->second.running;
  --running_;
  if (lanes_.size() > kKeptLanes && lane->second.running == 0 && lane->second.head == nullptr) {
    lanes_.erase(lane);
  }
}

void IoPool::work() {
  MutexLock lock(mutex_);
  while (!stopped_ || tasks_ > 0) {
    end_pauses(std::chrono::steady_clock::now());
    if (IoTask* task = take(); task != nullptr) {
      // Who takes a task wakes the next thread if there is more to do, so that one submit or one
      // end of a pause wakes one thread and not all.
      if (work_waits()) changed_.notify_one();
      run(*task);
    } else if (paused_.empty()) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_for(mutex_, paused_.front().until - std::chrono::steady_clock::now());
    }
  }
}

void IoPool::run(IoTask& task) {
  const dev_t device = task.device_;
  const bool stopped = stopped_;
  mutex_.unlock();
  const std::optional<std::chrono::nanoseconds> pause = task.run(stopped);
  mutex_.lock();
  leave_lane(device);
  if (!pause || stopped) {
    if (--tasks_ == 0 && stopped_) changed_.notify_all();
  } else if (std::exchange(task.hastened_, false)) {
    enqueue(task);
  } else {
    paused_.push_back({std::chrono::steady_clock::now() + *pause, &task});
    std::push_heap(paused_.begin(), paused_.end(), kLatestFirst);
  }
}

}  // namespace spdld::source

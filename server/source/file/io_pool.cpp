// SPDX-License-Identifier: Apache-2.0
#include "source/file/io_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"

namespace spdld::source {
namespace {

// Lanes of devices that went away are dropped beyond this many; a few are kept, so that a lane that
// runs empty between two reads is not made anew for each.
constexpr std::size_t kKeptLanes = 64;
// And so are users' queues.
constexpr std::size_t kKeptQueues = 16;

constexpr auto kLatestFirst = [](const auto& a, const auto& b) { return a.until > b.until; };

}  // namespace

IoPool::IoPool(Options options) : options_(options) {
  SPDLD_CHECK(options.threads > 0 && options.max_tasks > 0);
  const auto count = static_cast<std::size_t>(options.threads);
  {
    MutexLock lock(mutex_);
    in_hand_.resize(count);
  }
  threads_.reserve(count);
  for (std::size_t thread = 0; thread < count; ++thread) {
    threads_.emplace_back([this, thread] { work(thread); });
  }
}

IoPool::~IoPool() { stop(); }

Status IoPool::submit(dev_t device, std::shared_ptr<IoTask> task) {
  return submit(device, ::geteuid(), std::move(task));
}

Status IoPool::submit(dev_t device, uid_t user, std::shared_ptr<IoTask> task) {
  MutexLock lock(mutex_);
  if (stopped_) return Status(Code::kCancelled, "the I/O pool has been stopped");
  if (tasks_ >= options_.max_tasks) {
    return Status(Code::kResourceExhausted, "the I/O pool has all the " +
                                                std::to_string(options_.max_tasks) +
                                                " reads it takes; ask for fewer at once");
  }
  ++tasks_;
  task->device_ = device;
  task->user_ = user;
  task->withdrawn_ = false;
  task->resumed_ = false;
  enqueue(std::move(task));
  changed_.notify_one();
  return {};
}

void IoPool::withdraw(IoTask& task) {
  std::shared_ptr<IoTask> dropped;  // dies under no lock
  MutexLock lock(mutex_);
  task.withdrawn_ = true;
  dropped = remove(task);
  if (dropped != nullptr) --tasks_;
}

void IoPool::resume(IoTask& task) {
  MutexLock lock(mutex_);
  const auto found = unresumed_.find(&task);
  if (found == unresumed_.end()) {
    task.resumed_ = true;
    return;
  }
  enqueue(std::move(found->second));
  unresumed_.erase(found);
  changed_.notify_one();
}

void IoPool::stop() {
  std::vector<std::shared_ptr<IoTask>> unended;
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (auto& [device, lane] : lanes_) {
      while (lane.waiting > 0) unended.push_back(take(lane));
    }
    for (Paused& paused : paused_) unended.push_back(std::move(paused.task));
    paused_.clear();
    for (auto& [_, task] : unresumed_) unended.push_back(std::move(task));
    unresumed_.clear();
    tasks_ -= unended.size();
    for (const auto& task : in_hand_) {
      if (task != nullptr) unended.push_back(task);
    }
    changed_.notify_all();
  }
  for (const auto& task : unended) task->cancel();
}

bool IoPool::idle_within(std::chrono::nanoseconds patience) {
  const Time deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (running_ > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return false;
    idle_.wait_for(mutex_, left);
  }
  return true;
}

void IoPool::enqueue(std::shared_ptr<IoTask> task) {
  task->next_ = nullptr;
  Lane& lane = lanes_[task->device_];
  Queue& queue = lane.queues[task->user_];
  IoTask* const last = task.get();
  (queue.head == nullptr ? queue.head : queue.tail->next_) = std::move(task);
  queue.tail = last;
  ++lane.waiting;
}

// Out of its lane, if it waits there.
std::shared_ptr<IoTask> IoPool::unlink(IoTask& task) {
  const auto lane = lanes_.find(task.device_);
  if (lane == lanes_.end()) return nullptr;
  const auto queue = lane->second.queues.find(task.user_);
  if (queue == lane->second.queues.end()) return nullptr;
  IoTask* before = nullptr;
  for (std::shared_ptr<IoTask>* here = &queue->second.head; *here != nullptr;
       here = &before->next_) {
    if (here->get() == &task) {
      if (queue->second.tail == &task) queue->second.tail = before;
      --lane->second.waiting;
      std::shared_ptr<IoTask> rest = std::move(task.next_);
      return std::exchange(*here, std::move(rest));
    }
    before = here->get();
  }
  return nullptr;
}

std::shared_ptr<IoTask> IoPool::remove(IoTask& task) {
  if (auto waiting = unresumed_.extract(&task)) return std::move(waiting.mapped());
  const auto found = std::find_if(paused_.begin(), paused_.end(), [&task](const Paused& paused) {
    return paused.task.get() == &task;
  });
  if (found == paused_.end()) return unlink(task);
  std::shared_ptr<IoTask> removed = std::move(found->task);
  paused_.erase(found);
  std::make_heap(paused_.begin(), paused_.end(), kLatestFirst);
  return removed;
}

void IoPool::end_pauses(Time now) {
  while (!paused_.empty() && paused_.front().until <= now) {
    std::pop_heap(paused_.begin(), paused_.end(), kLatestFirst);
    enqueue(std::move(paused_.back().task));
    paused_.pop_back();
  }
}

bool IoPool::may_run(const Lane& lane) const {
  if (lane.waiting == 0) return false;
  const int others = running_ - lane.running;
  return lane.running < std::max(1, (options_.threads - others) / 2);
}

std::shared_ptr<IoTask> IoPool::take() {
  // Around the lanes, from the one after that which was served last.
  auto lane = lanes_.upper_bound(last_served_);
  for (std::size_t i = 0; i < lanes_.size(); ++i, ++lane) {
    if (lane == lanes_.end()) lane = lanes_.begin();
    if (!may_run(lane->second)) continue;
    ++lane->second.running;
    ++running_;
    last_served_ = lane->first;
    return take(lane->second);
  }
  return nullptr;
}

std::shared_ptr<IoTask> IoPool::take(Lane& lane) {
  // Users take turns: the next one after the user that was served last, and so round.
  auto queue = lane.queues.upper_bound(lane.last_served);
  while (queue == lane.queues.end() || queue->second.head == nullptr)
    queue = queue == lane.queues.end() ? lane.queues.begin() : std::next(queue);
  lane.last_served = queue->first;
  --lane.waiting;
  std::shared_ptr<IoTask> rest = std::move(queue->second.head->next_);
  std::shared_ptr<IoTask> task = std::exchange(queue->second.head, std::move(rest));
  if (queue->second.head == nullptr && lane.queues.size() > kKeptQueues) lane.queues.erase(queue);
  return task;
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
  if (lanes_.size() > kKeptLanes && lane->second.running == 0 && lane->second.waiting == 0) {
    lanes_.erase(lane);
  }
}

void IoPool::work(std::size_t thread) {
  ::pthread_setname_np(::pthread_self(), ("spdld-io-" + std::to_string(thread)).c_str());
  while (std::shared_ptr<IoTask> task = next(thread)) {
    const std::optional<std::chrono::nanoseconds> pause = task->run();
    ran(thread, task, pause);
  }  // one that has ended dies here, under no lock
}

std::shared_ptr<IoTask> IoPool::next(std::size_t thread) {
  MutexLock lock(mutex_);
  while (!stopped_) {
    end_pauses(std::chrono::steady_clock::now());
    if (std::shared_ptr<IoTask> task = take(); task != nullptr) {
      if (work_waits()) changed_.notify_one();
      in_hand_[thread] = task;
      return task;
    }
    if (paused_.empty()) {
      changed_.wait(mutex_);
    } else {
      changed_.wait_for(mutex_, paused_.front().until - std::chrono::steady_clock::now());
    }
  }
  return nullptr;
}

void IoPool::ran(std::size_t thread, std::shared_ptr<IoTask>& task,
                 std::optional<std::chrono::nanoseconds> pause) {
  MutexLock lock(mutex_);
  in_hand_[thread] = nullptr;  // the thread has it still
  leave_lane(task->device_);
  if (!pause || stopped_ || task->withdrawn_) {
    --tasks_;
    if (stopped_) idle_.notify_all();
    return;
  }
  if (*pause == IoTask::kUntilResumed) {
    if (std::exchange(task->resumed_, false)) {
      enqueue(std::move(task));
    } else {
      IoTask* const waiting = task.get();
      unresumed_.emplace(waiting, std::move(task));
    }
    return;
  }
  paused_.push_back({std::chrono::steady_clock::now() + *pause, std::move(task)});
  std::push_heap(paused_.begin(), paused_.end(), kLatestFirst);
}

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#include "source/file/io_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <list>
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

// A device without a call for so long is not told of.
constexpr std::chrono::minutes kOfLate{1};

// Takes one more into a mean of which the last 16 make up most.
void fold(std::chrono::nanoseconds& mean, std::chrono::nanoseconds one, std::uint64_t before) {
  mean += (one - mean) / static_cast<std::int64_t>(std::min<std::uint64_t>(before + 1, 16));
}

constexpr auto kLatestFirst = [](const auto& a, const auto& b) { return a.until > b.until; };

}  // namespace

IoPool::IoPool(Options options) : options_(options), most_threads_(options.threads) {
  SPDLD_CHECK(options.threads > 0 && options.max_tasks > 0);
}

IoPool::~IoPool() {
  stop();
  std::list<Thread> all;  // joined under no lock
  MutexLock lock(mutex_);
  all.swap(threads_);
  all.splice(all.end(), ended_);
}

Status IoPool::submit(dev_t device, std::shared_ptr<IoTask> task) {
  return submit(device, ::geteuid(), std::move(task));
}

Status IoPool::submit(dev_t device, uid_t user, std::shared_ptr<IoTask> task) {
  std::list<Thread> ended;  // joined under no lock
  MutexLock lock(mutex_);
  ended.swap(ended_);
  if (stopped_) return Status(Code::kCancelled, "the I/O pool has been stopped");
  if (tasks_ >= options_.max_tasks) {
    return Status(Code::kResourceExhausted, "the I/O pool has all the " +
                                                std::to_string(options_.max_tasks) +
                                                " reads it takes; ask for fewer at once");
  }
  IoTask& submitted = *task;
  task->device_ = device;
  task->user_ = user;
  task->queued_ = {};
  task->withdrawn_ = false;
  task->resumed_ = false;
  enqueue(std::move(task));  // may throw
  ++tasks_;
  // The first one that waits has a thread look when a call is stuck.
  if (waiting_ == 1 || idle_threads_ == 0 || may_run(lanes_[device])) wake_one();
  if (!threads_.empty()) return {};
  task = unlink(submitted);  // no thread could be started, and none would ever take it
  --tasks_;
  return Status(Code::kResourceExhausted,
                "no thread can be started to read with; raise the limits on the daemon's threads "
                "(TasksMax, ulimit -u) or on its memory");
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
  wake_one();
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
    for (const Thread& thread : threads_) {
      if (thread.in_hand != nullptr) unended.push_back(thread.in_hand);
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
  task->enqueued_ = std::chrono::steady_clock::now();
  task->next_ = nullptr;
  Lane& lane = lanes_[task->device_];
  Queue& queue = lane.queues[task->user_];
  IoTask* const last = task.get();
  (queue.head == nullptr ? queue.head : queue.tail->next_) = std::move(task);
  queue.tail = last;
  ++lane.waiting;
  ++waiting_;
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
      --waiting_;
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

int IoPool::share(const Lane& lane) const {
  const int others = running_ - stuck_ - (lane.running - lane.stuck);
  return std::max(1, (most_threads_ - others) / 2);
}

bool IoPool::others_wait(const Lane& lane) const {
  return lane.waiting < waiting_ &&
         std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& other) SPDLD_REQUIRES(mutex_) {
           return &other.second != &lane && other.second.waiting > 0 &&
                  other.second.running < share(other.second);
         });
}

bool IoPool::may_run(const Lane& lane) const {
  if (lane.waiting == 0 || running_ - stuck_ >= most_threads_) return false;
  if (lane.running < share(lane)) return true;
  return lane.stuck == 0 && lane.running < most_for_one_device(most_threads_) && !others_wait(lane);
}

int IoPool::most_for_one_device(int threads) {
  return std::max(1, threads - std::max(1, threads / 16));
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
  --waiting_;
  std::shared_ptr<IoTask> rest = std::move(queue->second.head->next_);
  std::shared_ptr<IoTask> task = std::exchange(queue->second.head, std::move(rest));
  if (queue->second.head == nullptr && lane.queues.size() > kKeptQueues) lane.queues.erase(queue);
  return task;
}

bool IoPool::work_waits() const {
  const auto may = [this](const auto& lane) SPDLD_REQUIRES(mutex_) { return may_run(lane.second); };
  return std::any_of(lanes_.begin(), lanes_.end(), may);
}

bool IoPool::pause_is_unseen() const {
  return !paused_.empty() && (!watch_ || *watch_ > paused_.front().until);
}

void IoPool::leave_lane(dev_t device) {
  const auto lane = lanes_.find(device);
  --lane->second.running;
  --running_;
  if (lanes_.size() > kKeptLanes && lane->second.running == 0 && lane->second.waiting == 0) {
    lanes_.erase(lane);
  }
}

void IoPool::wake_one() {
  if (idle_threads_ > 0) {
    changed_.notify_one();
  } else if (!stopped_ && static_cast<int>(threads_.size()) <= most_threads_ + stuck_) {
    start_thread();
  }
}

void IoPool::start_thread() {
  std::list<Thread> started;
  try {
    const auto thread = started.emplace(started.end());
    thread->thread = std::jthread([this, thread, number = started_] {
      ::pthread_setname_np(::pthread_self(), ("spdld-io-" + std::to_string(number)).c_str());
      work(thread);
    });
  } catch (const std::exception&) {  // a thread that is there takes the task later
    return;
  }
  threads_.splice(threads_.end(), started);
  ++started_;
  ++idle_threads_;  // it is about to look
}

void IoPool::work(ThreadIterator thread) {
  while (std::shared_ptr<IoTask> task = next(thread)) {
    const std::optional<std::chrono::nanoseconds> pause = task->run();
    ran(thread, task, pause);
  }  // one that has ended dies here, under no lock
}

std::shared_ptr<IoTask> IoPool::next(ThreadIterator thread) {
  std::list<Thread> ended;  // before this one; joined under no lock
  MutexLock lock(mutex_);
  if (std::exchange(thread->is_new, false)) --idle_threads_;
  bool goes_on = true;
  while (!stopped_) {
    end_pauses(std::chrono::steady_clock::now());
    if (std::shared_ptr<IoTask> task = take(); task != nullptr) {
      thread->in_hand = task;
      thread->since = std::chrono::steady_clock::now();
      task->queued_ += thread->since - task->enqueued_;
      Lane& lane = lanes_[task->device_];
      fold(lane.queued, thread->since - task->enqueued_, lane.ended);
      if (work_waits() || (waiting_ > 0 && idle_threads_ == 0) || pause_is_unseen()) wake_one();
      return task;
    }
    // Only a thread that has looked once more ends: it may have been woken for a task.
    if (!goes_on) break;
    // There are more threads than may run once calls that were stuck have ended.
    if (static_cast<int>(threads_.size()) > most_threads_ + stuck_ + 1) {
      if (pause_is_unseen()) wake_one();
      break;
    }
    goes_on = sleep();
  }
  if (!stopped_) {
    ended.swap(ended_);
    ended_.splice(ended_.end(), threads_, thread);
  }
  return nullptr;
}

bool IoPool::sleep() {
  const Time now = std::chrono::steady_clock::now();
  Time until = now + options_.idle_for;
  if (!paused_.empty()) until = std::min(until, paused_.front().until);
  if (waiting_ > 0) {
    const int stuck = stuck_;
    const std::optional<Time> next = find_stuck(now);
    if (stuck_ > stuck) return true;
    if (next) until = std::min(until, *next);
  }
  const bool watches = !watch_ || until < *watch_;
  if (watches) watch_ = until;
  ++idle_threads_;
  changed_.wait_for(mutex_, until - now);
  --idle_threads_;
  if (watches && watch_ == until) watch_.reset();
  // The last idle thread has to see when a call is stuck, and one has to see when a pause ends.
  const bool is_needed = (idle_threads_ == 0 && waiting_ > 0) || pause_is_unseen();
  return is_needed || std::chrono::steady_clock::now() - now < options_.idle_for;
}

std::optional<IoPool::Time> IoPool::find_stuck(Time now) {
  std::optional<Time> next;
  for (Thread& thread : threads_) {
    if (thread.in_hand == nullptr || thread.stuck) continue;
    const Time at = thread.since + options_.stuck_after;
    if (at <= now && stuck_ < most_threads_) {
      thread.stuck = true;
      ++stuck_;
      ++lanes_[thread.in_hand->device_].stuck;
    } else if (at > now && (!next || at < *next)) {
      next = at;
    }
  }
  return next;
}

void IoPool::ran(ThreadIterator thread, std::shared_ptr<IoTask>& task,
                 std::optional<std::chrono::nanoseconds> pause) {
  MutexLock lock(mutex_);
  thread->in_hand = nullptr;  // `task` has it still
  if (std::exchange(thread->stuck, false)) {
    --stuck_;
    --lanes_[task->device_].stuck;
  }
  // One that pauses, for room say, is not served yet.
  if (!pause) {
    Lane& lane = lanes_[task->device_];
    lane.ended_at = std::chrono::steady_clock::now();
    fold(lane.served, lane.ended_at - thread->since, lane.ended++);
  }
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

std::vector<IoPool::DeviceUse> IoPool::devices() const {
  MutexLock lock(mutex_);
  std::vector<DeviceUse> uses;
  const Time now = std::chrono::steady_clock::now();
  std::map<dev_t, Time> oldest;
  std::map<dev_t, int> stuck;  // also where nobody waits, so that no thread has looked
  for (const Thread& thread : threads_) {
    if (thread.in_hand == nullptr) continue;
    const auto [known, is_first] = oldest.try_emplace(thread.in_hand->device_, thread.since);
    known->second = std::min(known->second, thread.since);
    if (now - thread.since >= options_.stuck_after) ++stuck[thread.in_hand->device_];
  }
  for (const auto& [device, lane] : lanes_) {
    const bool is_idle = lane.running == 0 && lane.waiting == 0;
    if (device == 0 || (is_idle && now - lane.ended_at > kOfLate)) continue;
    const bool alone = lane.stuck == 0 && !others_wait(lane);
    const auto since = oldest.find(device);
    uses.push_back(
        {.device = device,
         .running = lane.running,
         .stuck = stuck[device],
         .most = alone ? most_for_one_device(most_threads_) : share(lane),
         .waiting = lane.waiting,
         .ended = lane.ended,
         .queued = lane.queued,
         .served = lane.served,
         .longest = since == oldest.end() ? std::chrono::nanoseconds(0) : now - since->second});
  }
  return uses;
}

void IoPool::set_threads(int threads) {
  SPDLD_CHECK(threads > 0);
  MutexLock lock(mutex_);
  most_threads_ = threads;
  if (work_waits()) wake_one();  // it wakes the next one
}

int IoPool::most_threads() const {
  MutexLock lock(mutex_);
  return most_threads_;
}

int IoPool::threads() const {
  MutexLock lock(mutex_);
  return static_cast<int>(threads_.size());
}

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace spdld::source {

// Work that may block on one device. The pool shares it from submit() until it has ended; its
// submitter may be gone by then, so it must own, or share, all that run() touches.
class IoTask {
 public:
  virtual ~IoTask() = default;

  // The pause of a task that waits for IoPool::resume().
  static constexpr auto kUntilResumed = std::chrono::nanoseconds::max();

  // Called on one of the pool's threads, never twice at once. Nothing: done, and the pool never
  // calls it again. A pause: call run() again after it; no thread is held meanwhile.
  virtual std::optional<std::chrono::nanoseconds> run() = 0;

  // The pool was stopped before the task had ended. Called once, by the thread that stops the pool;
  // run() is not called again, but a call of it may be under way, and hang.
  virtual void cancel() = 0;

 protected:
  // From run(): so long the task has waited in line for a thread, in all.
  std::chrono::nanoseconds queued() const { return queued_; }

 private:
  friend class IoPool;
  std::chrono::steady_clock::time_point enqueued_;
  std::chrono::nanoseconds queued_{0};
  dev_t device_ = 0;
  uid_t user_ = 0;
  std::shared_ptr<IoTask> next_;
  bool withdrawn_ = false;
  bool resumed_ = false;  // while it ran
};

// The threads on which reads may block. Made once by the daemon, outlives every source.
//
// Threads come with need, up to a bound, and end when they were idle for a while. Devices take
// turns, and on each device the users whose tasks wait for it, so that no user waits for more than
// one task of each other user. While others wait, a device may have half of the threads that they
// leave, and always one: of 16 threads the first has 8, the second 4, and so on. A device alone may
// have all but a few, which are left for the first read of another one.
//
// A call that lasts is stuck, as on a mount that hangs: its thread counts no longer, and another
// one may come in its place. A device with stuck calls has no thread beyond the share that it would
// have beside others.
//
// Thread-safe. States: running, then stopped by stop() or the destructor: every task that has not
// ended is cancelled at once, later ones are refused. The destructor waits for calls of run() that
// are inside the kernel; a caller that cannot wait asks idle_within() first.
class IoPool {
 public:
  struct Options {
    int threads = 256;              // at most; stuck ones, as many again, do not count
    std::size_t max_tasks = 65536;  // waiting, paused and running together
    std::chrono::nanoseconds stuck_after = std::chrono::seconds(1);  // a call of run()
    std::chrono::nanoseconds idle_for = std::chrono::seconds(10);    // before a thread ends
  };

  explicit IoPool(Options options);
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  // A task of `user`'s; without one, of the daemon's own. kResourceExhausted: the pool has
  // max_tasks already, or it has no thread and can start none; kCancelled: stopped. The task is not
  // taken then.
  Status submit(dev_t device, uid_t user, std::shared_ptr<IoTask> task) SPDLD_EXCLUDES(mutex_);
  Status submit(dev_t device, std::shared_ptr<IoTask> task) SPDLD_EXCLUDES(mutex_);

  // A submitted task is not to run again: if it waits or pauses, it is dropped; if it runs, that is
  // the last time.
  void withdraw(IoTask& task) SPDLD_EXCLUDES(mutex_);

  // Ends the pause of a task that waits for this, or the next one if it runs just now.
  void resume(IoTask& task) SPDLD_EXCLUDES(mutex_);

  // Idempotent; waits for nothing.
  void stop() SPDLD_EXCLUDES(mutex_);
  // Once stopped: whether no call of run() is under way any more, at the latest after `patience`.
  bool idle_within(std::chrono::nanoseconds patience) SPDLD_EXCLUDES(mutex_);

  // The tasks of one device. Each time is the mean of the last few.
  struct DeviceUse {
    dev_t device = 0;
    int running = 0;  // now
    int stuck = 0;    // of these
    int most = 0;     // that may run at once, as things are
    std::size_t waiting = 0;
    std::uint64_t ended = 0;
    std::chrono::nanoseconds queued{0};   // in line for a thread
    std::chrono::nanoseconds served{0};   // by the device: the last call of run()
    std::chrono::nanoseconds longest{0};  // of those that run now: so far
  };
  // Of the devices that had a task in the last minute; tasks of device 0 are of none.
  std::vector<DeviceUse> devices() const SPDLD_EXCLUDES(mutex_);

  // So many threads at most from now on, at least 1. Calls that are under way go on.
  void set_threads(int threads) SPDLD_EXCLUDES(mutex_);
  int most_threads() const SPDLD_EXCLUDES(mutex_);
  // How many threads the pool has now.
  int threads() const SPDLD_EXCLUDES(mutex_);
  // Of so many threads, those that a device may have while nobody else waits.
  static int most_for_one_device(int threads);

 private:
  using Time = std::chrono::steady_clock::time_point;

  // One user's tasks for one device, first in first out.
  struct Queue {
    std::shared_ptr<IoTask> head;
    IoTask* tail = nullptr;
  };
  // One device's tasks.
  struct Lane {
    std::map<uid_t, Queue> queues;  // some may be empty
    std::size_t waiting = 0;
    uid_t last_served = 0;
    int running = 0;
    int stuck = 0;            // of these
    std::uint64_t ended = 0;  // as DeviceUse has it, and the next two
    std::chrono::nanoseconds queued{0};
    std::chrono::nanoseconds served{0};
    Time ended_at;  // the last one
  };
  struct Thread {
    std::shared_ptr<IoTask> in_hand = nullptr;
    Time since = {};  // when it got that
    bool stuck = false;
    bool is_new = true;  // it has not looked for work yet
    std::jthread thread = {};
  };
  using ThreadIterator = std::list<Thread>::iterator;
  struct Paused {
    Time until;
    std::shared_ptr<IoTask> task;
  };

  void work(ThreadIterator thread) SPDLD_EXCLUDES(mutex_);
  // The task that the thread is to run; null: the thread ends.
  std::shared_ptr<IoTask> next(ThreadIterator thread) SPDLD_EXCLUDES(mutex_);
  void ran(ThreadIterator thread, std::shared_ptr<IoTask>& task,
           std::optional<std::chrono::nanoseconds> pause) SPDLD_EXCLUDES(mutex_);
  // Has a thread that is idle, or a new one, look for work and for calls that are stuck. Where no
  // thread can be started, those that are there look later.
  void wake_one() SPDLD_REQUIRES(mutex_);
  void start_thread() SPDLD_REQUIRES(mutex_);
  // Sleeps until there may be something to do. False: it has been idle for long enough.
  bool sleep() SPDLD_REQUIRES(mutex_);
  // Whether no idle thread sees when the next pause ends.
  bool pause_is_unseen() const SPDLD_REQUIRES(mutex_);
  // Looks for calls that have lasted; returns when the next one will have.
  std::optional<Time> find_stuck(Time now) SPDLD_REQUIRES(mutex_);
  // How many threads a device may have beside others.
  int share(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  bool others_wait(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  std::shared_ptr<IoTask> take() SPDLD_REQUIRES(mutex_);
  bool may_run(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  // The next task of the user whose turn it is; a task must wait there.
  std::shared_ptr<IoTask> take(Lane& lane) SPDLD_REQUIRES(mutex_);
  bool work_waits() const SPDLD_REQUIRES(mutex_);
  void enqueue(std::shared_ptr<IoTask> task) SPDLD_REQUIRES(mutex_);
  std::shared_ptr<IoTask> unlink(IoTask& task) SPDLD_REQUIRES(mutex_);
  // Takes the task out of its lane or its pause; null: it is in neither.
  std::shared_ptr<IoTask> remove(IoTask& task) SPDLD_REQUIRES(mutex_);
  void end_pauses(Time now) SPDLD_REQUIRES(mutex_);
  void leave_lane(dev_t device) SPDLD_REQUIRES(mutex_);

  const Options options_;  // but for `threads`
  mutable Mutex mutex_;
  int most_threads_ SPDLD_GUARDED_BY(mutex_);
  // Where threads sleep, by the rule of Executor::work_may_wait_. A thread sleeps, or ends, only
  // after it looked and found nothing. A task that is submitted wakes one thread. A thread that
  // takes a task wakes the next one if more may run, or if nobody would see a pause end. A thread
  // that is done with a task, whose device and others may then have more threads, looks for itself.
  // So while tasks wait that may not run, there is one thread more than may run, which sees when a
  // call is stuck; and while tasks pause, there is one that sleeps no longer than the first of
  // them.
  CondVar changed_;
  CondVar idle_;  // where idle_within() waits
  std::map<dev_t, Lane> lanes_ SPDLD_GUARDED_BY(mutex_);
  dev_t last_served_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::vector<Paused> paused_ SPDLD_GUARDED_BY(mutex_);  // a heap, the earliest first
  std::map<IoTask*, std::shared_ptr<IoTask>> unresumed_ SPDLD_GUARDED_BY(mutex_);
  std::size_t tasks_ SPDLD_GUARDED_BY(mutex_) = 0;
  int running_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::size_t waiting_ SPDLD_GUARDED_BY(mutex_) = 0;    // of all lanes
  int stuck_ SPDLD_GUARDED_BY(mutex_) = 0;              // of those running
  int idle_threads_ SPDLD_GUARDED_BY(mutex_) = 0;       // those that sleep, or were just started
  std::optional<Time> watch_ SPDLD_GUARDED_BY(mutex_);  // one that sleeps wakes then, at the latest
  std::uint64_t started_ SPDLD_GUARDED_BY(mutex_) = 0;  // threads
  bool stopped_ SPDLD_GUARDED_BY(mutex_) = false;
  std::list<Thread> threads_ SPDLD_GUARDED_BY(mutex_);
  std::list<Thread> ended_ SPDLD_GUARDED_BY(mutex_);  // to be joined under no lock
};

}  // namespace spdld::source

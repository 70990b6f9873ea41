// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/ordered_tasks.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace spdld::source {
namespace {

constexpr auto kProgressPause = std::chrono::milliseconds(100);

// The threads of one call and what they have come to.
class Workers {
 public:
  explicit Workers(const OrderedTasks& tasks) : tasks_(tasks) {}

  Status run() {
    const auto threads =
        std::clamp<std::size_t>(static_cast<std::size_t>(std::max(1, tasks_.threads)), 1,
                                std::max<std::size_t>(tasks_.count, 1));
    {
      MutexLock lock(mutex_);
      working_ = threads;
    }
    {
      std::vector<std::jthread> workers;
      for (std::size_t i = 0; i < threads; ++i) workers.emplace_back([this] { work(); });
      for (bool done = false; !done;) {
        {
          MutexLock lock(mutex_);
          if (working_ > 0) done_.wait_for(mutex_, kProgressPause);
          done = working_ == 0;
        }
        if (tasks_.progress) tasks_.progress();
      }
    }
    if (tasks_.stop.stop_requested()) return Status(Code::kCancelled, "it was stopped");
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  void work() SPDLD_EXCLUDES(mutex_) {
    ::pthread_setname_np(::pthread_self(), "spdld-index");
    for (;;) {
      const std::size_t number = next_.fetch_add(1, std::memory_order_relaxed);
      if (number >= tasks_.count || is_given_up(number)) break;
      if (Status status = attempt(number); !status.ok()) fail(number, std::move(status));
    }
    MutexLock lock(mutex_);
    if (--working_ == 0) done_.notify_all();
  }

  Status attempt(std::size_t number) {
    try {
      return tasks_.task(number, [this, number] { return is_given_up(number); });
    } catch (const std::bad_alloc&) {
      return Status(Code::kResourceExhausted, "there is no memory left to go on with");
    }
  }

  bool is_given_up(std::size_t number) const {
    return tasks_.stop.stop_requested() || number > failed_.load(std::memory_order_relaxed);
  }

  void fail(std::size_t number, Status status) SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    // What was given up says only that.
    if (number >= failed_.load(std::memory_order_relaxed)) return;
    failed_.store(number, std::memory_order_relaxed);
    failure_ = std::move(status);
  }

  const OrderedTasks& tasks_;
  std::atomic<std::size_t> next_ = 0;  // relaxed: hands out numbers
  // Relaxed: a late look costs some work.
  std::atomic<std::size_t> failed_ = std::numeric_limits<std::size_t>::max();
  Mutex mutex_;
  CondVar done_;
  std::size_t working_ SPDLD_GUARDED_BY(mutex_) = 0;
  Status failure_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace

Status run_in_order(const OrderedTasks& tasks) { return Workers(tasks).run(); }

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace spdld {

// Threads for work that may block (listing a dataset, making an arena), so that the thread that
// asks for it goes on. Scheduling is round robin over users, and first in first out within a user.
// One user never occupies all threads, unless there is only one, so another user waits for one task
// at most. Thread-safe; the destructor drops what has not begun and waits for what has.
class BlockingPool {
 public:
  using Task = std::function<void()>;

  BlockingPool(const char* name, int threads);
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  // A task of `uid`'s; without one, of the daemon's own.
  void post(uid_t uid, Task task) SPDLD_EXCLUDES(mutex_);
  void post(Task task) SPDLD_EXCLUDES(mutex_);
  // Tasks that have not begun, by user; those who have none are left out.
  std::map<uid_t, std::size_t> waiting() const SPDLD_EXCLUDES(mutex_);
  // Drops what has not begun, waits for what has. Idempotent; later posts are dropped.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  struct User {
    std::deque<Task> tasks;
    int running = 0;
  };

  void work(const char* name) SPDLD_EXCLUDES(mutex_);
  bool may_begin(const User& user) const;
  // The user whose turn it is; turns_.end() if nobody has a task that may begin.
  std::deque<uid_t>::iterator next_turn() SPDLD_REQUIRES(mutex_);

  const int most_of_one_user_;
  mutable Mutex mutex_;
  // Threads wait here while no task may begin. post() signals one thread when its task may begin.
  // The end of a task lets at most one other begin; the thread that ended it takes that one itself,
  // so it signals nobody.
  CondVar may_begin_;
  std::map<uid_t, User> users_ SPDLD_GUARDED_BY(mutex_);  // those with waiting or running tasks
  std::deque<uid_t> turns_ SPDLD_GUARDED_BY(mutex_);      // those with waiting tasks, each once
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace spdld

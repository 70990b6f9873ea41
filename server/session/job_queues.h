// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "job/job_key.h"

namespace spdld::session {

// Work on jobs that may wait for storage for as long as that likes. What is posted for one job is
// done in order, and holds up no other job: each job that has work has a thread. A user has a
// bounded number of these; further jobs of the user wait for one. Thread-safe; a leaf among the
// locks. The destructor drops what has not begun and waits for what has.
class JobQueues {
 public:
  using Task = std::function<void()>;

  JobQueues(std::string thread_name, std::size_t threads_per_user)
      : thread_name_(std::move(thread_name)), threads_per_user_(threads_per_user) {}
  ~JobQueues() { stop(); }
  JobQueues(const JobQueues&) = delete;
  JobQueues& operator=(const JobQueues&) = delete;

  // kResourceExhausted: the machine has no thread for it.
  Status post(const job::JobKey& job, Task task) SPDLD_EXCLUDES(mutex_);
  // Drops what has not begun, waits for what has. Idempotent; later posts are dropped.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  struct User {
    std::size_t threads = 0;
    std::deque<job::JobKey> waiting;  // for a thread
  };

  void run(job::JobKey job) SPDLD_EXCLUDES(mutex_);
  // Of this job, or of the user's next one, which `job` becomes; null: the thread ends.
  Task next(job::JobKey& job) SPDLD_EXCLUDES(mutex_);

  const std::string thread_name_;
  const std::size_t threads_per_user_;
  Mutex mutex_;
  CondVar ended_;  // signalled when the last thread of a user ends
  // Of jobs that have a thread, or wait for one.
  std::map<job::JobKey, std::deque<Task>> tasks_ SPDLD_GUARDED_BY(mutex_);
  std::map<uid_t, User> users_ SPDLD_GUARDED_BY(mutex_);  // those with threads
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
};

}  // namespace spdld::session

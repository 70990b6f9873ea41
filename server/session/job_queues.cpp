// SPDX-License-Identifier: Apache-2.0
#include "session/job_queues.h"

#include <pthread.h>

#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"

namespace spdld::session {

Status JobQueues::post(const job::JobKey& job, Task task) {
  MutexLock lock(mutex_);
  if (stopping_) return {};
  const auto [tasks, is_new] = tasks_.try_emplace(job);
  tasks->second.push_back(std::move(task));
  if (!is_new) return {};
  User& user = users_[job.uid];
  if (user.threads < threads_per_user_) {
    try {
      std::thread([this, job] { run(job); }).detach();
      ++user.threads;
      return {};
    } catch (const std::system_error&) {
      if (user.threads == 0) {
        tasks_.erase(tasks);
        users_.erase(job.uid);
        return Status(
            Code::kResourceExhausted,
            "the machine gives the daemon no further thread: raise its limit of tasks, or "
            "try again");
      }
    }
  }
  user.waiting.push_back(job);
  return {};
}

void JobQueues::run(job::JobKey job) {
  ::pthread_setname_np(::pthread_self(), thread_name_.c_str());
  while (Task task = next(job)) {
    try {
      task();
    } catch (const std::exception& thrown) {  // no memory, say
      spdlog::error("{}: {}", thread_name_, thrown.what());
    }
  }
}

JobQueues::Task JobQueues::next(job::JobKey& job) {
  MutexLock lock(mutex_);
  User& user = users_.at(job.uid);
  auto tasks = tasks_.find(job);
  if (tasks != tasks_.end() && tasks->second.empty()) {
    tasks_.erase(tasks);
    tasks = tasks_.end();
  }
  if (tasks == tasks_.end() && !user.waiting.empty()) {
    job = std::move(user.waiting.front());
    user.waiting.pop_front();
    tasks = tasks_.find(job);
  }
  if (tasks == tasks_.end()) {
    if (--user.threads == 0) {
      users_.erase(job.uid);
      ended_.notify_all();
    }
    return nullptr;
  }
  Task task = std::move(tasks->second.front());
  tasks->second.pop_front();
  return task;
}

void JobQueues::stop() {
  std::map<job::JobKey, std::deque<Task>> dropped;  // goes after the lock
  MutexLock lock(mutex_);
  stopping_ = true;
  tasks_.swap(dropped);
  for (auto& [uid, user] : users_) user.waiting.clear();
  while (!users_.empty()) ended_.wait(mutex_);
}

}  // namespace spdld::session

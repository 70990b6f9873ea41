// SPDX-License-Identifier: Apache-2.0
#include "base/blocking_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace spdld {

BlockingPool::BlockingPool(const char* name, int threads)
    : most_of_one_user_(std::max(1, threads - 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, name] { work(name); });
}

BlockingPool::~BlockingPool() { stop(); }

void BlockingPool::post(uid_t uid, Task task) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  User& user = users_[uid];
  if (user.tasks.empty()) turns_.push_back(uid);
  user.tasks.push_back(std::move(task));
  // A user who has all threads that one may have: the thread that ends one of the tasks sees it.
  if (may_begin(user)) may_begin_.notify_one();
}

void BlockingPool::post(Task task) { post(::geteuid(), std::move(task)); }

std::map<uid_t, std::size_t> BlockingPool::waiting() const {
  MutexLock lock(mutex_);
  std::map<uid_t, std::size_t> waiting;
  for (const auto& [uid, user] : users_) {
    if (!user.tasks.empty()) waiting[uid] = user.tasks.size();
  }
  return waiting;
}

void BlockingPool::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    turns_.clear();
    for (auto& [uid, user] : users_) user.tasks.clear();
    may_begin_.notify_all();
  }
  for (std::jthread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool BlockingPool::may_begin(const User& user) const { return user.running < most_of_one_user_; }

std::deque<uid_t>::iterator BlockingPool::next_turn() {
  return std::find_if(turns_.begin(), turns_.end(), [this](uid_t uid) SPDLD_REQUIRES(mutex_) {
    return may_begin(users_.at(uid));
  });
}

void BlockingPool::work(const char* name) {
  pthread_setname_np(pthread_self(), name);
  while (true) {
    Task task;
    uid_t uid = 0;
    {
      MutexLock lock(mutex_);
      auto turn = next_turn();
      while (!stopping_ && turn == turns_.end()) {
        may_begin_.wait(mutex_);
        turn = next_turn();
      }
      if (stopping_) return;
      uid = *turn;
      turns_.erase(turn);
      User& user = users_.at(uid);
      task = std::move(user.tasks.front());
      user.tasks.pop_front();
      ++user.running;
      if (!user.tasks.empty()) turns_.push_back(uid);
    }
    try {
      task();
    } catch (const std::exception& thrown) {  // no memory, say
      spdlog::error("{}: {}", name, thrown.what());
    }
    task = nullptr;  // what it holds goes before its user's place is free
    MutexLock lock(mutex_);
    User& user = users_.at(uid);
    --user.running;
    if (user.running == 0 && user.tasks.empty()) users_.erase(uid);
  }
}

}  // namespace spdld

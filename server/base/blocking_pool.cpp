// SPDX-License-Identifier: Apache-2.0
#include "base/blocking_pool.h"

#include <pthread.h>

#include <exception>
#include <utility>

#include "base/log.h"

namespace spdld {

BlockingPool::BlockingPool(const char* name, int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, name] { work(name); });
}

BlockingPool::~BlockingPool() { stop(); }

void BlockingPool::post(Task task) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void BlockingPool::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    tasks_.clear();
    changed_.notify_all();
  }
  for (std::jthread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void BlockingPool::work(const char* name) {
  pthread_setname_np(pthread_self(), name);
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && tasks_.empty()) changed_.wait(mutex_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (const std::exception& thrown) {  // no memory, say
      spdlog::error("{}: {}", name, thrown.what());
    }
  }
}

}  // namespace spdld

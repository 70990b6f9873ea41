// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace spdld {

// Threads for work that may block (listing a dataset, making an arena) and must not hold up whoever
// asks for it. Tasks begin in order. Thread-safe; the destructor drops what has not begun and waits
// for what has.
class BlockingPool {
 public:
  using Task = std::function<void()>;

  BlockingPool(const char* name, int threads);
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  void post(Task task) SPDLD_EXCLUDES(mutex_);
  // Drops what has not begun, waits for what has. Idempotent; later posts are dropped.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  void work(const char* name) SPDLD_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ SPDLD_GUARDED_BY(mutex_);
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/mutex.h"
#include "engine/executor.h"

namespace spdld::engine {

// Lives on the stack of one of the executor's methods.
class SPDLD_THREAD_ANNOTATION(scoped_lockable) Executor::Change {
 public:
  explicit Change(Executor& executor) SPDLD_ACQUIRE(executor.mutex_) : executor_(executor) {
    executor_.mutex_.lock();
  }
  ~Change() SPDLD_RELEASE() {
    if (!looks_next_) executor_.wake_worker();
    executor_.mutex_.unlock();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // It is made by a worker that looks for work before it does anything else: nobody needs to be
  // woken instead.
  void by_worker_that_looks_next() { looks_next_ = true; }

 private:
  Executor& executor_;
  bool looks_next_ = false;
};

}  // namespace spdld::engine

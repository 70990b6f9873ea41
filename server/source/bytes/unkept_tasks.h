// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace spdld::source {

// The tasks of a build that are done and not yet on the disk: they are kept together once they took
// a while, so that little is lost if the process dies. Thread-safe.
class UnkeptTasks {
 public:
  explicit UnkeptTasks(std::chrono::nanoseconds keep_each) : keep_each_(keep_each) {}

  // Adds a task that took so long. Gives all that are to be kept now, or none while they took less
  // than `keep_each`.
  std::vector<std::size_t> add(std::size_t number, std::chrono::nanoseconds took)
      SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    numbers_.push_back(number);
    took_ += took;
    if (took_ < keep_each_) return {};
    took_ = {};
    return std::exchange(numbers_, {});
  }
  // Gives those that are left.
  std::vector<std::size_t> take() SPDLD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::exchange(numbers_, {});
  }

 private:
  const std::chrono::nanoseconds keep_each_;
  Mutex mutex_;
  std::vector<std::size_t> numbers_ SPDLD_GUARDED_BY(mutex_);
  std::chrono::nanoseconds took_ SPDLD_GUARDED_BY(mutex_){};
};

}  // namespace spdld::source

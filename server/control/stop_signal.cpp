// SPDX-License-Identifier: Apache-2.0
#include "control/stop_signal.h"

namespace spdld::control {

void StopSignal::raise() {
  MutexLock lock(mutex_);
  raised_ = true;
  changed_.notify_all();
}

bool StopSignal::raised() const {
  MutexLock lock(mutex_);
  return raised_;
}

bool StopSignal::wait_for(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!raised_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return false;
    changed_.wait_for(mutex_, left);
  }
  return true;
}

}  // namespace spdld::control

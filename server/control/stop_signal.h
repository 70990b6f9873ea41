// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/mutex.h"

namespace spdld::control {

// Raised once, when the control server stops, so that what waits or streams ends. Owned by
// ControlServer; thread-safe.
class StopSignal {
 public:
  void raise() SPDLD_EXCLUDES(mutex_);
  bool raised() const SPDLD_EXCLUDES(mutex_);
  // True as soon as it is raised; false when `timeout` passed first.
  bool wait_for(std::chrono::milliseconds timeout) SPDLD_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool raised_ SPDLD_GUARDED_BY(mutex_) = false;
};

}  // namespace spdld::control

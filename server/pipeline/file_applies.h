// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/blocking_pool.h"
#include "base/mutex.h"

namespace spdld::pipeline {

// Applies the pipeline files of the configuration in their order, as one may take its classes from
// another. A file begins when the one before is applied, or its data do not answer: these hold back
// the file that names them alone.
//
// Owned by the daemon. Thread-safe. The destructor waits for what is under way.
class FileApplies {
 public:
  // Applies one file; blocks until it is done, and says itself what fails.
  using Apply = std::function<void(const std::string& file)>;

  // `stalled`: whether the file that was begun last does not come on, for what its data take; asked
  // several times a second. `done` is called each time that a file is done, or all are.
  FileApplies(Apply apply, std::function<bool()> stalled, std::function<void()> done);
  ~FileApplies();

  // Returns at once. A file that an earlier call still applies is left to that.
  void begin(std::vector<std::string> files) SPDLD_EXCLUDES(mutex_);
  // Whether some are not done.
  bool pending() const SPDLD_EXCLUDES(mutex_);
  // Whether all is done, for which it waits so long.
  bool idle_within(std::chrono::nanoseconds grace) SPDLD_EXCLUDES(mutex_);
  // Begins no more, and waits for what is under way. Idempotent.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  void begin_each(const std::vector<std::string>& files) SPDLD_EXCLUDES(mutex_);
  void apply(const std::string& file) SPDLD_EXCLUDES(mutex_);
  bool wait_for(const std::function<bool()>& done, std::chrono::nanoseconds grace)
      SPDLD_EXCLUDES(mutex_);

  const Apply apply_;
  const std::function<bool()> stalled_;
  const std::function<void()> done_;
  mutable Mutex mutex_;
  CondVar changed_;  // signalled when a file is done, or all of a call have begun
  int calls_ SPDLD_GUARDED_BY(mutex_) = 0;  // of begin() that have not begun all
  std::set<std::string> under_way_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::string, std::jthread> threads_ SPDLD_GUARDED_BY(mutex_);  // the last of each file
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  BlockingPool order_{"spdld-reload", 1};
};

}  // namespace spdld::pipeline

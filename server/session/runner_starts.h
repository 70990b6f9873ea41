// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "session/deps.h"
#include "session/job.h"

namespace spdld::session {

// Has ranks start the processes that run the functions of their own job, where there are none: they
// know with which interpreter and modules. One rank is asked at a time; if no process comes,
// another one. Owned by Sessions.
class RunnerStarts {
 public:
  explicit RunnerStarts(const SessionsDeps& deps) : deps_(deps) {}

  // Of the functions that `run` calls, which is the job's, or is to be. Under JobTable::mutex().
  void ask(const Job& job, const engine::Run& run) SPDLD_EXCLUDES(mutex_);
  // Of pools that an attach waits for.
  void ask(const SessionPtr& session, const std::vector<std::string>& pools) SPDLD_EXCLUDES(mutex_);

 private:
  struct Asked {
    std::chrono::nanoseconds at{0};
    std::uint64_t session = 0;
  };

  // Asks one of `able`, which are in the order of their ids, unless one was asked just now.
  void ask_one(const std::vector<SessionPtr>& able, stream::JobTag job, const std::string& pool)
      SPDLD_EXCLUDES(mutex_);

  const SessionsDeps& deps_;
  Mutex mutex_;  // a leaf
  // By job, which is none while it attaches, and what is wanted.
  std::map<std::pair<stream::JobTag, std::string>, Asked> asked_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session

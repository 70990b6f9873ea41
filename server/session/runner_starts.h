// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "session/job_table.h"

namespace spdld::session {

// Has ranks start the processes that run the functions of their own job, where there are none: they
// know with which interpreter and modules. One rank is asked at a time; if no process comes,
// another one. Owned by Sessions. Thread-safe.
class RunnerStarts {
 public:
  RunnerStarts(const SessionsDeps& deps, JobTable& table) : deps_(deps), table_(table) {}

  // Of the functions that `run` calls, which is the job's, or is to be.
  void ask(const Job& job, const engine::Run& run) SPDLD_REQUIRES(table_.mutex());
  void ask_unlocked(const Job& job, const engine::Run& run) SPDLD_EXCLUDES(table_.mutex()) {
    MutexLock lock(table_.mutex());
    ask(job, run);
  }

 private:
  struct Asked {
    std::chrono::nanoseconds at{0};
    std::uint64_t session = 0;
  };

  const SessionsDeps& deps_;
  JobTable& table_;
  // By job and what is wanted.
  std::map<std::pair<stream::JobTag, std::string>, Asked> asked_ SPDLD_GUARDED_BY(table_.mutex());
};

}  // namespace spdld::session

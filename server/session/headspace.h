// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "session/changes.h"
#include "session/job_queues.h"
#include "session/views.h"
#include "stream/streams.h"

namespace spdld::session {

// Measures how fast the ranks of a job would train if each batch were there when they want it.
// Owned by Sessions. Thread-safe; one measurement of a job at a time, on its caller's thread.
//
// First the steps are timed as they are. Then the job's prefetch grows to what fits, by a change
// like that of `tune`, but for nothing that is kept: after a restart it is as before. A round holds
// all ranks at one turn (Gate) until their slots are full, holds their streams, so that no batch is
// made, and lets the ranks go on as far as batches lie ready; these steps are timed. Every batch is
// handed out once and in order. A change of the job, a rank that leaves or seeks, or a caller that
// goes ends the measurement within some milliseconds: the ranks go on, and prefetch is as before.
// Memory for the old slots is set aside meanwhile; where they cannot be had all the same, tick()
// tries again.
class Headspace {
 public:
  static constexpr std::uint32_t kLeastBatches = 8;  // for each rank, in a round
  static constexpr std::uint32_t kLeastSteps = 8;
  static constexpr std::uint32_t kMostSteps = 1000;

  Headspace(const SessionsDeps& deps, stream::Streams& streams, JobTable& table, Changes& changes)
      : deps_(deps), streams_(streams), table_(table), changes_(changes) {}

  // Called every few milliseconds with the steps that were timed of all, and what is being done.
  // False: the caller wants no answer any more.
  using Progress =
      std::function<bool(std::uint64_t done, std::uint64_t total, const std::string& what)>;
  // Refuses a job that cannot be measured; one that was disturbed is measured as far as it came.
  Result<HeadspaceView> measure(const job::Caller& caller, const JobName& name, std::uint32_t steps,
                                const Progress& progress)
      SPDLD_EXCLUDES(table_.mutex(), table_.records());

  // Every second or so: on `queues`, jobs get back the prefetch that they had before they were
  // measured. Returns at once.
  void tick(JobQueues& queues);

  struct Measured {
    Mutex mutex;
    std::set<stream::JobTag> jobs SPDLD_GUARDED_BY(mutex);  // now
    std::map<stream::JobTag, JobPtr> grown
        SPDLD_GUARDED_BY(mutex);  // whose prefetch may be another
  };

 private:
  // The job's prefetch is as before.
  Status bring_back(const JobPtr& job) SPDLD_EXCLUDES(table_.mutex(), table_.records());

  const SessionsDeps& deps_;
  stream::Streams& streams_;
  JobTable& table_;
  Changes& changes_;
  Measured measured_;
};

}  // namespace spdld::session

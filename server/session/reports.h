// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rate_window.h"
#include "session/diagnosis.h"
#include "session/job_step.h"
#include "session/job_table.h"

namespace spdld::session {

// The stages of a job's current phase. `threads`: those of the daemon, for a stage without a limit.
std::vector<job::StageView> stages_of(const Job& job, std::uint32_t threads);

job::JobView view_of(const Job& job);
// How the job ended: when nobody is attached any more.
job::EndView end_of(const Job& job);

// Makes the views of jobs and sessions. A caller sees its own jobs, an admin all. Owned by
// Sessions. Thread-safe.
class Reports {
 public:
  Reports(const SessionsDeps& deps, const JobTable& table) : deps_(deps), table_(table) {}

  Result<job::JobView> job(const job::Caller& caller, const JobName& name) const;
  std::vector<job::JobView> jobs(const job::Caller& caller) const;
  std::vector<SessionView> sessions(const job::Caller& caller) const;
  std::vector<job::StageView> stages(const job::Caller& caller) const;
  // Of one job, or of all that the caller may see; `daemon` is left out.
  Result<std::vector<DiagnosisFacts>> diagnosis_facts(const job::Caller& caller,
                                                      const std::optional<JobName>& name) const;
  // kFailedPrecondition: the job has ended.
  Result<JobStep> step(const job::Caller& caller, const JobName& name, job::StepAt at,
                       std::uint32_t shard) const;
  // Of running jobs and, for as long as these are kept, ended ones; oldest first.
  std::vector<FailureView> failures(const job::Caller& caller, const std::string& job) const;
  // How each job ended the last time, the latest first.
  std::vector<store::StoredEnd> ended(const job::Caller& caller) const;
  struct Totals {
    std::uint32_t sessions = 0;
    std::uint32_t jobs = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    // In the last seconds; none: not known.
    std::optional<double> batches_per_s = std::nullopt;
    std::optional<double> rows_per_s = std::nullopt;
  };
  Totals totals() const;
  WorkersView workers() const;  // since the start
  // In the last seconds, seconds a second; none: not known.
  std::optional<WorkersView> workers_lately() const;
  // Of all arenas that consumers see.
  delivery::SlotTable::Counts slot_counts() const;
  // Adds the jobs and the CPU time of users.
  void count_users(std::map<uid_t, UserView>& users) const;

  // Every second: looks at the counters that rates are told of.
  void take_rates();

 private:
  // The job whose run makes what `job` reads next: another one, where they share a stream.
  JobPtr maker_of(const JobPtr& job) const SPDLD_REQUIRES(table_.mutex());
  Totals totals_so_far() const SPDLD_REQUIRES(table_.mutex());  // without rates

  const SessionsDeps& deps_;
  const JobTable& table_;
  RateWindow<2> handed_ SPDLD_GUARDED_BY(table_.mutex());  // batches and rows, to all consumers
  // Nanoseconds, in the order of WorkersView.
  RateWindow<13> workers_ SPDLD_GUARDED_BY(table_.mutex());
  // The last two of these:
  bool knows_cores_ SPDLD_GUARDED_BY(table_.mutex()) = false;
  bool knows_quota_ SPDLD_GUARDED_BY(table_.mutex()) = false;
};

}  // namespace spdld::session

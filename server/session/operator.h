// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/changes.h"
#include "session/drain.h"
#include "session/job_records.h"
#include "session/keeper.h"
#include "session/live_values.h"

namespace spdld::session {

// Carries out the commands of operators on jobs and sessions. Owned by Sessions. Thread-safe.
class Operator {
 public:
  Operator(const SessionsDeps& deps, JobTable& table, JobRecords& records, Changes& changes,
           Keeper& keeper, const Drain& drain)
      : deps_(deps),
        table_(table),
        records_(records),
        changes_(changes),
        keeper_(keeper),
        drain_(drain) {}

  Result<job::JobView> create_job(const job::Caller& caller, const JobRequest& request,
                                  const pipeline::Catalogue::Progress& progress = nullptr);
  Result<job::JobView> advance_epoch(const job::Caller& caller, const JobName& name,
                                     std::optional<std::uint64_t> to);
  Result<job::JobView> seek_job(const job::Caller& caller, const JobName& name, job::StepAt to);
  Result<job::JobView> resize_job(const job::Caller& caller, const JobName& name,
                                  std::uint32_t num_shards);
  Result<job::JobView> skip_steps(const job::Caller& caller, const JobName& name,
                                  std::uint64_t steps);
  // Changes live values of a job; returns all of them.
  Result<std::vector<LiveValue>> tune_job(const job::Caller& caller, const JobName& name,
                                          const TuneRequest& request);
  Result<DeletedJob> delete_job(const job::Caller& caller, const JobName& name);
  Status evict(const job::Caller& caller, std::uint64_t session, const std::string& reason);

  // The planned swap gets its turn, as a rank has come to it.
  void place_planned(const JobPtr& job);
  // Ranks have come to where other shards enter.
  void find_entries(const JobPtr& job);

 private:
  // kFailedPrecondition where members are in different places at the turn where the change begins:
  // the text names two of them.
  static Status check_together(const Change& change, const std::string& what);
  // Also those that wait to attach.
  static void end_members(Job& job, const job::Caller& caller);
  // Forgets the record of an ended job; none: there is no such job.
  Result<std::optional<job::JobKey>> forget_job(const job::Caller& caller, const JobName& name)
      SPDLD_REQUIRES(table_.records()) SPDLD_EXCLUDES(table_.mutex());

  const SessionsDeps& deps_;
  JobTable& table_;
  JobRecords& records_;
  Changes& changes_;
  Keeper& keeper_;
  const Drain& drain_;
};

}  // namespace spdld::session

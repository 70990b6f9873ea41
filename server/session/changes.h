// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "session/job_table.h"
#include "stream/device_reserve.h"

namespace spdld::session {

// A change of a job on its way: the job is held from begin_change() until end_change(), and nobody
// attaches to it.
struct Change {
  JobPtr job;
  JobState next;
  job::Turn from = job::kNoTurn;  // the first turn that its plan changes, if it does
  std::optional<job::Progress> goes_to = std::nullopt;  // where ranks that are away go on
  // Called with JobTable::mutex() once all consumers are ready, before the record is written. A
  // change that waits for memory on a GPU first is planned anew when the memory is there.
  std::function<void()> on_prepared = nullptr;
};

Change begin_change(JobTable& table, const JobPtr& job)
    SPDLD_REQUIRES(table.mutex(), table.records());
// Holds all consumers of the job until end_change(), and returns its frontier: the first turn that
// no member has been sent and of which no shard has begun a batch.
job::Turn hold(Job& job);
// An edit at change.from.
Status add_edit(Change& change, const job::Edit& edit);
// All consumers of the job make ready; a shortage in the reserve is refused.
Status prepare(Change& change, stream::DeviceReserve& reserve);
// Called just before the record is written. Fails if the change cannot be carried out: a stream
// that was made ready may have failed since.
Status check_prepared(const Change& change);
// As the disk has it once it is carried out.
store::StoredJob stored_after(const Change& change);
// If it is written, it counts from now on; else everything is as before. A job that all have left
// meanwhile ends.
void end_change(JobTable& table, Change& change, const Status& written)
    SPDLD_REQUIRES(table.mutex(), table.records());

// The one way in which a job changes: it is prepared on all its shards, then written to disk, then
// carried out or given up. Owned by Sessions. Thread-safe.
class Changes {
 public:
  Changes(const SessionsDeps& deps, JobTable& table) : deps_(deps), table_(table) {}

  // Carries out one change of one job, from the command on. `plan` is called with
  // JobTable::mutex(); its refusal ends the change.
  using Planning = std::function<Status(Change& change)>;
  Result<JobPtr> change_job(const job::Caller& caller, const JobName& name, const Planning& plan)
      SPDLD_EXCLUDES(table_.mutex(), table_.records());
  // The outcome of a change that cannot be written.
  enum class Unwritten {
    kRefused,
    kCounts,  // for a planned swap: ranks do not stop for a broken disk
  };
  Status change_job(const JobPtr& job, const Planning& plan, Unwritten unwritten)
      SPDLD_EXCLUDES(table_.mutex(), table_.records());

 private:
  // On disk when it returns.
  Status write(const Change& change) SPDLD_REQUIRES(table_.records())
      SPDLD_EXCLUDES(table_.mutex());

  const SessionsDeps& deps_;
  JobTable& table_;
};

}  // namespace spdld::session

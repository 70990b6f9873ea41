// SPDX-License-Identifier: Apache-2.0
#include "session/changes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/failpoint.h"
#include "session/job_records.h"

namespace spdld::session {

Change begin_change(JobTable&, const JobPtr& job) {
  job->being_written = true;
  return {.job = job, .next = job->state};
}

job::Turn hold(Job& job) {
  job::Turn frontier = job.first_turn();
  for (const SessionPtr& session : job.attached())
    frontier = std::max(frontier, session->consumer->hold());
  job.note_progress();
  return std::max(frontier, job.membership.frontier());
}

Status add_edit(Change& change, const job::Edit& edit) {
  Job& job = *change.job;
  auto next =
      with_edit(*change.next.plan, edit, job.membership.reached(), job.membership.released());
  if (!next) return next.error().with_context("job '" + job.key.job + "'");
  change.next.plan = *std::move(next);
  if (!job.membership.has_been_read()) change.next.plan = begun_behind_edits(*change.next.plan);
  return {};
}

Status prepare(Change& change, stream::DeviceReserve& reserve) {
  if (change.from == job::kNoTurn) return {};
  Status ready;
  for (const SessionPtr& session : change.job->attached()) {
    // The reserve is to hear of all that it lacks.
    if (!ready.ok() && !reserve.lacks()) continue;
    Status made = session->consumer->prepare(change.next.plan, change.from, &reserve);
    if (ready.ok()) ready = std::move(made);
  }
  return ready;
}

Status check_prepared(const Change& change) {
  for (const SessionPtr& session : change.job->attached()) {
    SPDLD_TRY(session->consumer->prepared().with_context(
        "job '" + change.job->key.job + "' goes on with what it has: what was made ready failed"));
  }
  return {};
}

store::StoredJob stored_after(const Change& change) {
  job::Membership members = change.job->membership;
  if (change.goes_to) members.go_to(*change.goes_to);
  return stored_job(*change.job, change.next, members);
}

Status Changes::write(const Change& change) {
  const Job& job = *change.job;
  if (job.is_private) return {};
  std::vector<store::StoredJob> records;
  std::vector<store::StoredPosition> positions;
  {
    MutexLock lock(table_.mutex());
    SPDLD_TRY(check_prepared(change));
    // How it ended before is told for as long as it is kept.
    const auto& ended_jobs = table_.ended().records();
    std::copy_if(ended_jobs.begin(), ended_jobs.end(), std::back_inserter(records),
                 [&](const store::StoredJob& ended) { return ended.key == job.key; });
    records.push_back(stored_after(change));
    change.job->record.is_old = false;  // unless somebody comes or leaves meanwhile
    if (change.goes_to) positions.push_back(stored_position(job, *change.goes_to));
  }
  const std::uint64_t now = unix_ms();
  for (store::StoredJob& record : records) record.kept_unix_ms = now;
  for (store::StoredPosition& position : positions) position.kept_unix_ms = now;
  const Status written = deps_.store.put_jobs(records, positions);
  MutexLock lock(table_.mutex());
  if (!written.ok()) {
    change.job->record.is_old = true;
    return written;
  }
  table_.ended().forget_records(job.key);
  if (change.goes_to) table_.ended().forget(job.key);
  change.job->membership.kept(records.back().reserved);
  for (const SessionPtr& session : job.attached())
    session->consumer->grant(records.back().reserved);
  change.job->record.unix_ms = now;
  return {};
}

void end_change(JobTable& table, Change& change, const Status& written) {
  Job& job = *change.job;
  const bool of_order = change.from != job::kNoTurn;
  bool renames = false;
  const std::uint32_t branch_before = job.schedule().branch();
  if (written.ok()) {
    renames = !of_order && job.state.plan != change.next.plan;
    if (job.state.plan != change.next.plan) job.adopt(change.next.plan);
    job.state = std::move(change.next);
    if (job.schedule().branch() != branch_before) job.membership.part(change.from);
    job.forget_versions();
    if (change.goes_to) {
      job.membership.go_to(*change.goes_to);
      if (job.members.empty()) job.ledger.rewind(*change.goes_to);
    }
  }
  for (const SessionPtr& session : job.attached()) {
    if (!of_order) {
      if (renames) session->consumer->rename(job.state.plan);
    } else if (written.ok()) {
      session->consumer->commit();
      SPDLD_FAILPOINT("session.swap.told");
    } else if (Status back = session->consumer->abort(); !back.ok()) {
      session->connection->fail(back);
    }
  }
  for (const SessionPtr& session : job.attached()) session->consumer->go_on();
  (void)job.find_entries();
  table.end_write(job);
  if (job.members.empty()) table.end_job(change.job);
}

Status Changes::change_job(const JobPtr& job, const Planning& plan, Unwritten unwritten) {
  stream::DeviceReserve reserve;
  while (true) {
    {
      MutexLock writing(table_.records());
      std::optional<Change> change;
      Status ready;
      {
        MutexLock lock(table_.mutex());
        if (!table_.runs(job))
          return Status(Code::kAborted, "job '" + job->key.job + "' has ended meanwhile");
        change = begin_change(table_, job);
        ready = plan(*change);
        if (ready.ok()) ready = prepare(*change, reserve);
        if (!ready.ok()) end_change(table_, *change, ready);
        if (ready.ok() && change->on_prepared) change->on_prepared();
      }
      if (ready.ok()) {
        const Status written = write(*change);
        MutexLock lock(table_.mutex());
        end_change(table_, *change, unwritten == Unwritten::kCounts ? Status() : written);
        return written;
      }
      if (!reserve.lacks()) return ready;
    }
    reserve.fill();
  }
}

Result<JobPtr> Changes::change_job(const job::Caller& caller, const JobName& name,
                                   const Planning& plan) {
  JobPtr job;
  {
    MutexLock lock(table_.mutex());
    SPDLD_ASSIGN(job, table_.find_job(caller, name));
  }
  SPDLD_TRY(change_job(job, plan, Unwritten::kRefused));
  return job;
}

}  // namespace spdld::session

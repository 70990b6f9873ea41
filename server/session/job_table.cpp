// SPDX-License-Identifier: Apache-2.0
#include "session/job_table.h"

#include <fmt/format.h>
#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "session/about.h"
#include "session/job_texts.h"
#include "session/reports.h"

namespace spdld::session {

JobTable::JobTable(const SessionsDeps& deps, stream::Streams& streams)
    : deps_(deps), streams_(streams), started_(deps.clock.now()) {}

SessionPtr JobTable::find(std::uint64_t id) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

SessionPtr JobTable::remove(std::uint64_t id) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  const SessionPtr session = found->second;
  sessions_.erase(found);
  if (session->consumer == nullptr) return session;
  const Consumer::View view = session->consumer->view();
  gone_.batches += view.batches;
  gone_.rows += view.rows;
  return session;
}

bool JobTable::visible(const job::Caller& caller, const job::JobKey& key) const {
  return caller.uid == key.uid || deps_.pipelines.is_admin(caller.uid);
}

std::optional<uid_t> JobTable::owner_seen_by(const job::Caller& caller) const {
  if (deps_.pipelines.is_admin(caller.uid)) return std::nullopt;
  return caller.uid;
}

Result<std::optional<job::JobKey>> JobTable::meant(const job::Caller& caller, const JobName& name,
                                                   std::vector<job::JobKey> keys) const {
  const std::vector<std::string>& ids = name.pipelines;
  std::erase_if(keys, [&](const job::JobKey& key) {
    const bool of_user =
        name.of_user && key.uid == name.of_user->uid && key.job == name.of_user->job;
    return (key.job != name.job && !of_user) || !visible(caller, key) ||
           (!ids.empty() && std::find(ids.begin(), ids.end(), key.pipeline) == ids.end());
  });
  // One's own job wins over another's of the same name, and one's own pipeline over a shared one.
  const auto prefer = [&keys](const auto& closer) {
    if (std::any_of(keys.begin(), keys.end(), closer))
      std::erase_if(keys, [&](const job::JobKey& key) { return !closer(key); });
  };
  prefer([&](const job::JobKey& key) { return key.uid == caller.uid; });
  prefer([&](const job::JobKey& key) { return !ids.empty() && key.pipeline == ids.front(); });
  if (keys.empty()) return std::optional<job::JobKey>();
  if (keys.size() == 1) return std::optional(keys.front());
  std::string names;
  for (const job::JobKey& key : keys)
    names += (names.empty() ? "'" : ", '") + deps_.pipelines.name_for(caller.uid, key.pipeline) +
             "' (uid " + std::to_string(key.uid) + ")";
  return error(Code::kInvalidArgument, "there are several jobs '" + name.job + "': " + names +
                                           "; say which with --pipeline, or as USER/" + name.job);
}

Result<JobPtr> JobTable::find_job(const job::Caller& caller, const JobName& name) const {
  std::vector<job::JobKey> running;
  for (const auto& [key, job] : jobs_) running.push_back(key);
  SPDLD_ASSIGN(const std::optional<job::JobKey> found, meant(caller, name, std::move(running)));
  if (found) return jobs_.at(*found);
  const auto awaited = meant(caller, name, {expected_.begin(), expected_.end()});
  if (come_back_s().count() > 0 && (!awaited || *awaited))
    return error(Code::kUnavailable,
                 "job '" + name.job +
                     "' was read when the daemon stopped, and none of its consumers has come "
                     "back yet; try again once one is attached, or in " +
                     std::to_string(come_back_s().count()) + " s, when it is no longer waited for");
  return error(Code::kNotFound,
               "there is no job '" + name.job + "'" +
                   (name.pipelines.empty()
                        ? ""
                        : " on pipeline '" +
                              deps_.pipelines.name_for(caller.uid, name.pipelines.front()) + "'") +
                   " that " + deps_.pipelines.trusted().who(caller.uid) +
                   " may see; 'spdlctl get jobs' lists those that run, and with --ended those that "
                   "have ended");
}

std::vector<JobPtr> JobTable::jobs_of(const job::Caller& caller,
                                      const std::string& pipeline) const {
  std::vector<JobPtr> jobs;
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline == pipeline && visible(caller, *job)) jobs.push_back(job);
  }
  return jobs;
}

std::map<std::uint32_t, std::uint32_t> JobTable::jobs_on(const std::string& pipeline) const {
  MutexLock lock(mutex_);
  std::map<std::uint32_t, std::uint32_t> by_version;
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline == pipeline) ++by_version[job->phase()->version()];
  }
  return by_version;
}

bool JobTable::has_other_phase(const pipeline::Phase& phase) const {
  MutexLock lock(mutex_);
  const std::string id = phase.pipeline->id();
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline != id) continue;
    for (const pipeline::PhasePtr& other : job->phases()) {
      if (other.get() != &phase && other->version() == phase.version()) return true;
    }
  }
  return false;
}

bool JobTable::is_run_or_expected(const std::string& pipeline) const {
  MutexLock lock(mutex_);
  const auto on_it = [&](const job::JobKey& key) { return key.pipeline == pipeline; };
  return std::any_of(expected_.begin(), expected_.end(), on_it) ||
         std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) { return on_it(job.first); });
}

bool JobTable::runs(const JobPtr& job) const {
  const auto running = jobs_.find(job->key);
  return running != jobs_.end() && running->second == job;
}

Status JobTable::check_room_for_job(uid_t uid) const {
  const std::size_t most = deps_.jobs_per_user;
  if (deps_.pipelines.trusted().contains(uid)) return {};
  const auto theirs = [uid](const auto& job) { return job.first.uid == uid; };
  const auto jobs = static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), theirs) +
                                             std::count_if(broken_.begin(), broken_.end(), theirs));
  if (jobs < most) return {};
  return Status(Code::kResourceExhausted,
                fmt::format("user {} has {} jobs, declared or running, and limits.jobs allows {}: "
                            "delete some ('spdlctl delete job NAME'), let some end, or have "
                            "limits.jobs raised",
                            uid, jobs, most));
}

std::chrono::seconds JobTable::come_back_s() const {
  const auto since = deps_.clock.now() - started_;
  return std::chrono::ceil<std::chrono::seconds>(
      std::max<std::chrono::nanoseconds>(kComeBack - since, std::chrono::nanoseconds(0)));
}

bool JobTable::awaits(const Job& job) const {
  return job.membership.expected() && come_back_s().count() > 0;
}

Status JobTable::check_settled(const Job& job, Code not_yet) const {
  if (!awaits(job)) return {};
  return Status(not_yet,
                "job '" + job.key.job + "': " + member_text(job, *job.membership.expected()) +
                    " was read when the daemon stopped and has not come back yet; try again "
                    "once it is attached, or in " +
                    std::to_string(come_back_s().count()) + " s, when it is no longer waited for");
}

// The place is free for another consumer; a job that nobody declared ends with its last one.
void JobTable::leave(const SessionPtr& session, bool done) {
  session->closed = true;
  session->asker.reset();
  session->replaced.reset();
  session->gpu.reset();  // there will be no consumer to have it
  if (session->job == nullptr) return stop_waiting(session);
  Job& job = *session->job;
  std::erase_if(job.waiting, [&](const auto& waiting) { return waiting.session == session; });
  const auto held = job.members.find(session->member);
  if (held == job.members.end() || held->second != session) return;
  job.note_left(*session, done);
  if (!done) job.last_parting = session->parting;
  if (session->consumer != nullptr && !suspended_) job.record.is_old = true;
  job.members.erase(held);
  if (job.members.empty()) end_job(session->job);
}

void JobTable::end_job(const JobPtr& ended) {
  Job& job = *ended;
  if (job.being_written) return;  // end_change() does it
  // A rank that waits for its shard goes on waiting for those that were there; else it would begin
  // another run.
  if (job.declared || !runs(ended) || !job.waiting.empty()) return;
  if (job.membership.anyone_left()) {
    store::StoredEnd end{.end = end_of(job),
                         .view = view_of(job),
                         .stages = stages_of(job, deps_.executor.threads())};
    end.view.ledger.at = job.acknowledged().at;
    end.view.rows_per_s.reset();
    for (job::StageView& stage : end.stages) {
      stage.in_flight = 0;
      stage.rows_per_s.reset();
      stage.failures_per_s.reset();
      stage.served.reset();
      stage.waiting.reset();
      stage.p50_lately_us = stage.p90_lately_us = stage.p99_lately_us = std::nullopt;
      stage.busy_share.reset();
      stage.failures_by_code.clear();
      stage.bytes.reset();
      stage.bytes_per_s.reset();
      stage.ops.clear();
    }
    end.view.shards.clear();
    end.view.phases.clear();
    log::info(about(job.key), "job '{}' on pipeline '{}' ended at {}: {}", job.key.job,
              job.key.pipeline, place_text(end.end.at), end.end.how);
    ended_.push(job, std::move(end), !suspended_);
  }
  drop_job(ended);
}

void JobTable::drop_job(const JobPtr& job) {
  for (const pipeline::PhasePtr& phase : job->phases()) {
    if (phase->cache_use != nullptr) phase->cache_use->end();
  }
  streams_.forget(job->tag);
  jobs_.erase(job->key);
  attach_again_waiting(*job);
}

void JobTable::drop_if_unused(const JobPtr& job) {
  if (job->members.empty() && !job->declared && !job->being_written) drop_job(job);
}

void JobTable::limits_changed(const Job& job) {
  job.meter->set_limit(job.state.limits.bytes.value_or(0));
  streams_.set_limits(job.tag,
                      {.weight = job.state.limits.weight,
                       .workers = static_cast<int>(job.state.limits.cpus.value_or(0)),
                       .fetching = static_cast<int>(job.state.limits.fetching.value_or(0)),
                       .processing = static_cast<int>(job.state.limits.processing.value_or(0))});
}

void JobTable::attach_again_waiting(Job& job) {
  if (suspended_) return;
  for (const Job::WaitingAttach& waiting : std::exchange(job.waiting, {}))
    attach_again(waiting.session, waiting.request);
}

void JobTable::end_write(Job& job) {
  job.being_written = false;
  attach_again_waiting(job);
}

void JobTable::stop_waiting(const SessionPtr& session) {
  for (const auto& [key, job] : jobs_) {
    const auto is_its = [&](const auto& waiting) { return waiting.session == session; };
    if (std::erase_if(job->waiting, is_its) == 0) continue;
    if (job->waiting.empty() && job->members.empty()) end_job(JobPtr(job));
    return;
  }
}

}  // namespace spdld::session

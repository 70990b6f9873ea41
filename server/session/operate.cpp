// SPDX-License-Identifier: Apache-2.0
// What operators do to jobs and sessions: the part of Sessions behind SessionService. Where jobs go
// on: move.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/job_texts.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

Status check_weight(double weight) {
  constexpr double kMaxWeight = 1000;
  if (weight >= 1 / kMaxWeight && weight <= kMaxWeight) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("a weight of {:g} is not between 0.001 and 1000", weight));
}

}  // namespace

void Sessions::limits_changed(const Job& job) {
  job.meter->set_limit(job.state.limits.bytes.value_or(0));
  streams_.set_limits(job.tag, {.weight = job.state.limits.weight,
                                .workers = static_cast<int>(job.state.limits.cpus.value_or(0))});
}

std::chrono::seconds Sessions::come_back_s() const {
  const auto since = deps_.clock.now() - started_;
  return std::chrono::ceil<std::chrono::seconds>(
      std::max<std::chrono::nanoseconds>(kComeBack - since, std::chrono::nanoseconds(0)));
}

bool Sessions::awaits(const Job& job) const {
  return job.membership.expected() && come_back_s().count() > 0;
}

Result<job::JobView> Sessions::create_job(const job::Caller& caller, const JobRequest& request,
                                          const pipeline::Catalogue::Progress& progress) {
  SPDLD_TRY(check_world(request.num_shards, request.replicas));
  SPDLD_TRY(check_weight(request.limits.weight));
  if (request.job.empty())
    return error(Code::kInvalidArgument, "a job needs a name, by which its ranks attach to it");
  SPDLD_TRY(check_job_name(request.job));
  SPDLD_ASSIGN(const pipeline::PipelinePtr base,
               deps_.catalogue.named(caller.uid, request.pipeline));
  SPDLD_ASSIGN(const pipeline::PipelinePtr pipeline,
               deps_.catalogue.variant(base, request.vars, request.batch_size, caller, progress));
  const job::JobKey key{.uid = caller.uid, .job = request.job, .pipeline = pipeline->id()};

  MutexLock writing(records_);
  KeptFailures failures = kept_failures(key);
  JobPtr job;
  store::StoredJob record;
  {
    MutexLock lock(mutex_);
    if (jobs_.contains(key))
      return error(Code::kAlreadyExists, "job '" + key.job + "' on pipeline '" +
                                             deps_.catalogue.name_for(caller.uid, key.pipeline) +
                                             "' is there already: 'spdlctl delete job " + key.job +
                                             "' removes it");
    SPDLD_TRY(check_room_for_job(key.uid));
    SPDLD_ASSIGN(job, make_job(key, pipeline, request.seed.value_or(pipeline->plan->spec.seed),
                               request.num_shards, false, std::move(failures)));
    job->declared = true;
    job->replicas = request.replicas;
    job->state.limits = request.limits;
    job->state.vars = request.vars;
    job->first_vars = request.vars;
    job->batch_size = request.batch_size;
    job->epochs = request.epochs;
    job->max_epochs = request.max_epochs;
    if (request.epochs == job::EpochMode::kManual) {
      job->state.open_epochs = 1;
    } else if (request.max_epochs > 0) {
      job->state.open_epochs = request.max_epochs;
    }
    job->being_written = true;
    jobs_[key] = job;
    record = job->stored();
  }
  // What a job of that name, declared or not, left behind is none of its business.
  record.kept_unix_ms = unix_ms();
  const Status kept = deps_.store.put_new_job(record);

  MutexLock lock(mutex_);
  end_write(*job);
  if (!kept.ok()) {
    drop_job(job);
    return tl::unexpected<Status>(kept);
  }
  job->recorded_unix_ms = record.kept_unix_ms;
  job->membership.kept(record.members);
  job->record_is_old = false;
  forget_ended(key);
  broken_.erase(key);
  limits_changed(*job);
  log::info(about(key, caller.uid), "job '{}' on pipeline '{}' created for uid {}: {}, {} epochs",
            key.job, key.pipeline, caller.uid, counted(request.num_shards, "shard"),
            request.epochs == job::EpochMode::kManual ? "manual" : "automatic");
  return job->view();
}

Result<job::JobView> Sessions::job(const job::Caller& caller, const JobName& name) const {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr found, find_job(caller, name));
  return found->view();
}

std::vector<job::JobView> Sessions::jobs(const job::Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<job::JobView> views;
  for (const auto& [key, job] : jobs_) {
    if (visible(caller, *job)) views.push_back(job->view());
  }
  return views;
}

Result<Sessions::Change> Sessions::plan_epochs(const job::Caller& caller, const JobName& name,
                                               std::optional<std::uint64_t> to) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  const std::uint64_t before = job->state.open_epochs;
  if (job->epochs != job::EpochMode::kManual)
    return error(Code::kFailedPrecondition, "job '" + job->key.job +
                                                "' goes on to the next epoch by itself; create it "
                                                "with manual epochs to say when");
  const std::uint64_t open = to ? *to + 1 : before + 1;
  if (to && open < before)
    return error(Code::kOutOfRange, "epoch " + std::to_string(*to) + " of job '" + job->key.job +
                                        "' lies behind: epoch " + std::to_string(before - 1) +
                                        " is open");
  if (job->max_epochs > 0 && open > job->max_epochs)
    return tl::unexpected<Status>(beyond_its_end(*job));
  Change change = begin_change(job);
  change.next.open_epochs = open;
  return change;
}

Result<job::JobView> Sessions::advance_epoch(const job::Caller& caller, const JobName& name,
                                             std::optional<std::uint64_t> to) {
  MutexLock writing(records_);
  SPDLD_ASSIGN(Change change, plan_epochs(caller, name, to));
  const Status written = write(change);
  MutexLock lock(mutex_);
  const Job& job = *change.job;
  if (written.ok()) {
    for (const auto& [member, session] : job.members) {
      if (session->consumer != nullptr)
        session->consumer->open_epochs(change.next.open_epochs,
                                       job.last_known(change.next.open_epochs));
    }
  }
  end_change(change, written);
  if (!written.ok()) return tl::unexpected<Status>(written);
  return job.view();
}

Result<Sessions::Change> Sessions::plan_limits(const job::Caller& caller, const JobName& name,
                                               const LimitChange& wanted) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  Change change = begin_change(job);
  job::JobLimits& limits = change.next.limits;
  if (wanted.weight) limits.weight = *wanted.weight;
  if (wanted.cpus) limits.cpus = wanted.cpus;
  if (limits.cpus == 0U) limits.cpus.reset();
  if (wanted.bytes) limits.bytes = wanted.bytes;
  if (limits.bytes == std::uint64_t{0}) limits.bytes.reset();
  return change;
}

Result<job::JobView> Sessions::limit_job(const job::Caller& caller, const JobName& name,
                                         const LimitChange& wanted) {
  if (wanted.weight) SPDLD_TRY(check_weight(*wanted.weight));
  MutexLock writing(records_);
  SPDLD_ASSIGN(Change change, plan_limits(caller, name, wanted));
  const Status written = write(change);
  MutexLock lock(mutex_);
  end_change(change, written);
  if (!written.ok()) return tl::unexpected<Status>(written);
  if (runs(change.job)) limits_changed(*change.job);
  return change.job->view();
}

// Also of those that wait to attach.
void Sessions::end_members(Job& job, const job::Caller& caller) {
  const std::string by = "deleted by uid " + std::to_string(caller.uid);
  const auto end = [&](Session& session) {
    session.parting = "its job was " + by;
    session.connection->bye(wire::ByeReason::kJobDeleted, "job '" + job.key.job + "' was " + by);
  };
  for (const auto& [member, session] : job.members) end(*session);
  for (const Job::WaitingAttach& waiting : std::exchange(job.waiting, {})) end(*waiting.session);
  job.members.clear();
}

Result<DeletedJob> Sessions::delete_job(const job::Caller& caller, const JobName& name) {
  MutexLock writing(records_);
  JobPtr job;
  std::optional<job::JobKey> key;
  {
    MutexLock lock(mutex_);
    std::vector<job::JobKey> there;
    for (const auto& [known, why] : broken_) there.push_back(known);
    for (const auto& [known, running] : jobs_) there.push_back(known);
    SPDLD_ASSIGN(key, meant(caller, name, std::move(there)));
    if (key && !broken_.contains(*key)) {
      job = jobs_.at(*key);
      job->being_written = true;
    } else if (!key) {
      const auto found = find_job(caller, name);
      if (!found && found.error().code() != Code::kNotFound)
        return tl::unexpected<Status>(found.error());
    }
  }
  if (!key) {
    SPDLD_ASSIGN(const std::optional<job::JobKey> forgotten, forget_job(caller, name));
    if (forgotten) return DeletedJob{.pipeline = forgotten->pipeline, .had_ended = true};
    MutexLock lock(mutex_);
    return tl::unexpected<Status>(find_job(caller, name).error());
  }
  const Status removed =
      job != nullptr && job->is_private ? Status() : deps_.store.remove_job(*key);
  MutexLock lock(mutex_);
  if (job != nullptr && removed.ok()) end_members(*job, caller);
  if (job != nullptr) end_write(*job);
  if (!removed.ok()) {
    if (job != nullptr && job->members.empty()) end_job(job);
    return tl::unexpected<Status>(removed);
  }
  forget_ended(*key);
  DeletedJob deleted{.pipeline = key->pipeline};
  if (job == nullptr) {
    log::info(about(*key, caller.uid),
              "job '{}' on pipeline '{}', which could not go on, deleted by uid {}", key->job,
              key->pipeline, caller.uid);
    broken_.erase(*key);
    return deleted;
  }
  log::info(about(*key, caller.uid), "job '{}' on pipeline '{}' deleted by uid {}", key->job,
            key->pipeline, caller.uid);
  drop_job(job);
  return deleted;
}

Status Sessions::evict(const job::Caller& caller, std::uint64_t id, const std::string& reason) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->closed || found->second->job == nullptr ||
      !visible(caller, *found->second->job))
    return Status(Code::kNotFound, "there is no session " + std::to_string(id) + " that uid " +
                                       std::to_string(caller.uid) +
                                       " may end; 'spdlctl get sessions' lists what there is");
  const std::string by =
      "uid " + std::to_string(caller.uid) + (reason.empty() ? "" : ": " + reason);
  found->second->parting = "evicted by " + by;
  found->second->connection->bye(wire::ByeReason::kEvicted, "ended by " + by);
  leave(found->second);
  return {};
}

}  // namespace spdld::session

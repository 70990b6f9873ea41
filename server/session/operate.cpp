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
  job.meter->set_limit(job.limits.bytes.value_or(0));
  streams_.set_limits(job.tag, {.weight = job.limits.weight,
                                .workers = static_cast<int>(job.limits.cpus.value_or(0))});
}

std::chrono::seconds Sessions::come_back_s() const {
  const auto since = deps_.clock.now() - started_;
  return std::chrono::ceil<std::chrono::seconds>(
      std::max<std::chrono::nanoseconds>(kComeBack - since, std::chrono::nanoseconds(0)));
}

bool Sessions::awaits(const Job& job) const {
  return !job.awaited.empty() && come_back_s().count() > 0;
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
  MutexLock lock(mutex_);
  if (jobs_.contains(key))
    return error(Code::kAlreadyExists, "job '" + key.job + "' on pipeline '" +
                                           deps_.catalogue.name_for(caller.uid, key.pipeline) +
                                           "' is there already: 'spdlctl delete job " + key.job +
                                           "' removes it");
  SPDLD_TRY(check_room_for_job(key.uid));
  SPDLD_ASSIGN(const JobPtr job,
               make_job(key, pipeline, request.seed.value_or(pipeline->plan->spec.seed),
                        request.num_shards, false));
  job->declared = true;
  job->replicas = request.replicas;
  job->limits = request.limits;
  job->vars = request.vars;
  job->first_vars = request.vars;
  job->batch_size = request.batch_size;
  job->epochs = request.epochs;
  job->max_epochs = request.max_epochs;
  if (request.epochs == job::EpochMode::kManual) {
    job->open_epochs = 1;
  } else if (request.max_epochs > 0) {
    job->open_epochs = request.max_epochs;
  }
  // What a job of that name, declared or not, left behind is none of its business.
  store::StoredJob record = job->stored();
  record.kept_unix_ms = job->recorded_unix_ms = unix_ms();
  SPDLD_TRY(deps_.store.put_new_job(record));
  job->frontiers.kept(record.frontiers);
  job->record_is_old = false;
  forget_ended(key);
  broken_.erase(key);
  jobs_[key] = job;
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

Result<job::JobView> Sessions::advance_epoch(const job::Caller& caller, const JobName& name,
                                             std::optional<std::uint64_t> to) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  if (job->epochs != job::EpochMode::kManual)
    return error(Code::kFailedPrecondition, "job '" + job->key.job +
                                                "' goes on to the next epoch by itself; create it "
                                                "with manual epochs to say when");
  const std::uint64_t open = to ? *to + 1 : job->open_epochs + 1;
  if (to && open < job->open_epochs)
    return error(Code::kOutOfRange, "epoch " + std::to_string(*to) + " of job '" + job->key.job +
                                        "' lies behind: epoch " +
                                        std::to_string(job->open_epochs - 1) + " is open");
  if (job->max_epochs > 0 && open > job->max_epochs)
    return tl::unexpected<Status>(beyond_its_end(*job));
  const std::uint64_t before = std::exchange(job->open_epochs, open);
  if (Status kept = keep_now(*job); !kept.ok()) {
    job->open_epochs = before;
    return tl::unexpected<Status>(kept);
  }
  for (const auto& [member, session] : job->members) {
    if (session->consumer != nullptr) session->consumer->open_epochs(open, job->last_known());
  }
  return job->view();
}

Result<job::JobView> Sessions::limit_job(const job::Caller& caller, const JobName& name,
                                         const LimitChange& change) {
  if (change.weight) SPDLD_TRY(check_weight(*change.weight));
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  const job::JobLimits before = job->limits;
  if (change.weight) job->limits.weight = *change.weight;
  if (change.cpus) job->limits.cpus = change.cpus;
  if (job->limits.cpus == 0U) job->limits.cpus.reset();
  if (change.bytes) job->limits.bytes = change.bytes;
  if (job->limits.bytes == std::uint64_t{0}) job->limits.bytes.reset();
  if (Status kept = keep_now(*job); !kept.ok()) {
    job->limits = before;
    return tl::unexpected<Status>(kept);
  }
  limits_changed(*job);
  return job->view();
}

Result<DeletedJob> Sessions::delete_job(const job::Caller& caller, const JobName& name) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  std::vector<job::JobKey> there;
  for (const auto& [key, why] : broken_) there.push_back(key);
  for (const auto& [key, job] : jobs_) there.push_back(key);
  SPDLD_ASSIGN(const std::optional<job::JobKey> rests, meant(caller, name, std::move(there)));
  if (rests && broken_.contains(*rests)) {
    SPDLD_TRY(deps_.store.remove_job(*rests));
    log::info(about(*rests, caller.uid),
              "job '{}' on pipeline '{}', which could not go on, deleted by uid {}", rests->job,
              rests->pipeline, caller.uid);
    broken_.erase(*rests);
    return DeletedJob{.pipeline = rests->pipeline};
  }
  const auto found = find_job(caller, name);
  if (!found && found.error().code() == Code::kNotFound) {
    SPDLD_ASSIGN(const std::optional<job::JobKey> forgotten, forget_job(caller, name));
    if (forgotten) return DeletedJob{.pipeline = forgotten->pipeline, .had_ended = true};
  }
  if (!found) return tl::unexpected<Status>(found.error());
  const JobPtr& job = *found;
  if (!job->is_private) SPDLD_TRY(deps_.store.remove_job(job->key));
  forget_ended(job->key);
  for (const auto& [member, session] : job->members) {
    session->parting = "its job was deleted by uid " + std::to_string(caller.uid);
    session->connection->bye(
        wire::ByeReason::kJobDeleted,
        "job '" + job->key.job + "' was deleted by uid " + std::to_string(caller.uid));
  }
  job->members.clear();
  streams_.forget(job->tag);
  log::info(about(job->key, caller.uid), "job '{}' on pipeline '{}' deleted by uid {}",
            job->key.job, job->key.pipeline, caller.uid);
  DeletedJob deleted{.pipeline = job->key.pipeline};
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

// SPDX-License-Identifier: Apache-2.0
// What operators do to jobs and sessions: the part of Sessions behind SessionService.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

Status check_shards(std::uint32_t num_shards) {
  if (num_shards >= 1 && num_shards <= kMaxShards) return {};
  return Status(Code::kInvalidArgument, "num_shards " + std::to_string(num_shards) +
                                            " is not between 1 and " + std::to_string(kMaxShards));
}

// Where the job is, if its dataset is still one in which it can be there.
Status take_up(Job& job, const StoredJob& stored) {
  for (const Timeline::Cut& cut : stored.cuts) {
    SPDLD_TRY(job.timeline.check(cut.from, cut.position));
    SPDLD_TRY(check_shards(cut.num_shards));
    job.timeline.cut(cut);
    if (job.timeline.steps_per_epoch() == 0)
      return Status(Code::kFailedPrecondition, std::to_string(job.timeline.items()) +
                                                   " items make no step of " +
                                                   std::to_string(cut.num_shards) + " shards");
  }
  const std::uint64_t end_step = job.timeline.end_step(stored.start.epoch);
  if (stored.start.step > end_step)
    return Status(Code::kFailedPrecondition, "epoch " + std::to_string(stored.start.epoch) +
                                                 " has " + std::to_string(end_step) +
                                                 " steps now, and it starts at step " +
                                                 std::to_string(stored.start.step));
  job.start = stored.start;
  return {};
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::uint64_t microseconds(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count() / 1000);
}

}  // namespace

Status Sessions::restore() {
  SPDLD_ASSIGN(const std::vector<StoredJob> kept, deps_.store.jobs());
  MutexLock lock(mutex_);
  for (const StoredJob& stored : kept) {
    const PipelinePtr base = deps_.catalogue.find(stored.key.pipeline);
    if (base == nullptr) {
      spdlog::warn(
          "job '{}' waits for its pipeline '{}', which is not there: apply it and create "
          "the job anew",
          stored.key.job, stored.key.pipeline);
      continue;
    }
    auto pipeline =
        deps_.catalogue.variant(base, stored.request.vars, stored.request.batch_size, nullptr);
    if (!pipeline) {
      spdlog::error("job '{}' cannot go on: {}", stored.key.job, pipeline.error().message());
      continue;
    }
    auto made = make_job(stored.key, *pipeline, stored.seed, stored.request.num_shards, false);
    if (!made) {
      spdlog::error("job '{}' cannot go on: {}", stored.key.job, made.error().message());
      continue;
    }
    Job& job = **made;
    job.declared = true;
    job.vars = stored.request.vars;
    job.epochs = stored.request.epochs;
    job.open_epochs = stored.open_epochs;
    job.max_epochs = stored.request.max_epochs;
    if (Status fits = take_up(job, stored); !fits.ok()) {
      spdlog::error(
          "job '{}' cannot go on: {}; bring the dataset back and restart, or create the job anew",
          stored.key.job, fits.message());
      continue;
    }
    jobs_[stored.key] = *made;
  }
  return {};
}

Result<JobView> Sessions::create_job(const Caller& caller, const JobRequest& request) {
  SPDLD_TRY(check_shards(request.num_shards));
  if (request.job.empty())
    return error(Code::kInvalidArgument, "a job needs a name, by which its ranks attach to it");
  if (request.replicas != 1)
    return error(Code::kInvalidArgument,
                 "replicas " + std::to_string(request.replicas) +
                     ": this version gives each shard to one consumer; leave replicas at 1");
  SPDLD_ASSIGN(const PipelinePtr base, deps_.catalogue.get(request.pipeline));
  SPDLD_ASSIGN(const PipelinePtr pipeline,
               deps_.catalogue.variant(base, request.vars, request.batch_size, nullptr));
  const JobKey key{.uid = caller.uid, .job = request.job, .pipeline = pipeline->name()};

  MutexLock lock(mutex_);
  if (jobs_.contains(key))
    return error(Code::kAlreadyExists, "job '" + key.job + "' on pipeline '" + key.pipeline +
                                           "' is there already: 'spdlctl delete job " + key.job +
                                           "' removes it");
  SPDLD_ASSIGN(const JobPtr job,
               make_job(key, pipeline, request.seed.value_or(pipeline->plan->spec.seed),
                        request.num_shards, false));
  job->declared = true;
  job->vars = request.vars;
  job->epochs = request.epochs;
  job->max_epochs = request.max_epochs;
  if (request.epochs == EpochMode::kManual) {
    job->open_epochs = 1;
  } else if (request.max_epochs > 0) {
    job->open_epochs = request.max_epochs;
  }
  SPDLD_TRY(deps_.store.put_job(job->stored()));
  jobs_[key] = job;
  spdlog::info("job '{}' on pipeline '{}' created for uid {}: {} shards, {} epochs", key.job,
               key.pipeline, caller.uid, request.num_shards,
               request.epochs == EpochMode::kManual ? "manual" : "automatic");
  return job->view();
}

Result<JobView> Sessions::job(const Caller& caller, std::string_view job,
                              std::string_view pipeline) const {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr found, find_job(caller, job, pipeline));
  return found->view();
}

std::vector<JobView> Sessions::jobs(const Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<JobView> views;
  for (const auto& [key, job] : jobs_) {
    if (visible(caller, *job)) views.push_back(job->view());
  }
  return views;
}

Result<JobView> Sessions::advance_epoch(const Caller& caller, std::string_view name,
                                        std::string_view pipeline,
                                        std::optional<std::uint64_t> to) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name, pipeline));
  if (job->epochs != EpochMode::kManual)
    return error(Code::kFailedPrecondition, "job '" + job->key.job +
                                                "' goes on to the next epoch by itself; create it "
                                                "with manual epochs to say when");
  const std::uint64_t open = to ? *to + 1 : job->open_epochs + 1;
  if (to && open < job->open_epochs)
    return error(Code::kOutOfRange, "epoch " + std::to_string(*to) + " of job '" + job->key.job +
                                        "' lies behind: epoch " +
                                        std::to_string(job->open_epochs - 1) + " is open");
  if (job->max_epochs > 0 && open > job->max_epochs)
    return error(Code::kOutOfRange, "job '" + job->key.job + "' ends with epoch " +
                                        std::to_string(job->max_epochs - 1));
  const std::uint64_t before = std::exchange(job->open_epochs, open);
  if (Status kept = deps_.store.put_job(job->stored()); !kept.ok()) {
    job->open_epochs = before;
    return tl::unexpected<Status>(kept);
  }
  for (const auto& [shard, session] : job->shards) {
    if (session->feed != nullptr) session->feed->open_epochs(open, job->last_known());
  }
  return job->view();
}

Result<JobView> Sessions::seek_job(const Caller& caller, std::string_view name,
                                   std::string_view pipeline, StepAt to) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name, pipeline));
  SPDLD_TRY(job->timeline.check(to, 0));
  if (job->max_epochs > 0 && to.epoch >= job->max_epochs)
    return error(Code::kOutOfRange, "job '" + job->key.job + "' ends with epoch " +
                                        std::to_string(job->max_epochs - 1));
  const std::uint64_t end_step = job->timeline.end_step(to.epoch);
  if (to.step > end_step)
    return error(Code::kOutOfRange, "epoch " + std::to_string(to.epoch) + " of job '" +
                                        job->key.job + "' has " + std::to_string(end_step) +
                                        " steps; there is no step " + std::to_string(to.step));
  const Timeline timeline_before = job->timeline;
  const StepAt before = std::exchange(job->start, to);
  job->timeline.redeal(to, job->timeline.sharding(to).position_of(to.step));
  if (job->declared) {
    if (Status kept = deps_.store.put_job(job->stored()); !kept.ok()) {
      job->start = before;
      job->timeline = timeline_before;
      return tl::unexpected<Status>(kept);
    }
  }
  for (const auto& [shard, session] : job->shards) {
    if (session->feed != nullptr) session->feed->move_to(to, job->timeline);
  }
  return job->view();
}

Result<JobView> Sessions::resize_job(const Caller& caller, std::string_view name,
                                     std::string_view pipeline, std::uint32_t num_shards) {
  SPDLD_TRY(check_shards(num_shards));
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name, pipeline));
  if (num_shards == job->timeline.num_shards()) return job->view();
  {
    Timeline whole(job->timeline.items(), job->pipeline->plan->spec.batch.last, job->batch_size(),
                   num_shards);
    if (whole.steps_per_epoch() == 0)
      return error(Code::kFailedPrecondition,
                   std::to_string(whole.items()) + " items make no step of " +
                       std::to_string(num_shards) + " shards with batches of " +
                       std::to_string(job->batch_size()));
  }
  // From the first step that no shard has begun: held still until all know.
  Timeline::Cut cut{.from = job->start, .position = 0, .num_shards = num_shards};
  cut.position = job->timeline.sharding(cut.from).position_of(cut.from.step);
  std::vector<std::shared_ptr<Feed>> feeds;
  for (const auto& [shard, session] : job->shards) {
    if (session->feed == nullptr) continue;
    feeds.push_back(session->feed);
    const Feed::Frontier frontier = session->feed->hold();
    if (frontier.at > cut.from) {
      cut.from = frontier.at;
      cut.position = frontier.position;
    }
  }
  Timeline before = job->timeline;
  job->timeline.cut(cut);
  Status kept = job->declared ? deps_.store.put_job(job->stored()) : Status();
  if (kept.ok()) {
    for (const auto& feed : feeds) feed->reshard(cut);
  } else {
    job->timeline = std::move(before);
  }
  for (const auto& feed : feeds) feed->go_on();
  if (!kept.ok()) return tl::unexpected<Status>(kept);
  spdlog::info("job '{}' has {} shards from epoch {}, step {} on", job->key.job, num_shards,
               cut.from.epoch, cut.from.step);
  return job->view();
}

Status Sessions::delete_job(const Caller& caller, std::string_view name,
                            std::string_view pipeline) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name, pipeline));
  if (!job->is_private) SPDLD_TRY(deps_.store.remove_job(job->key));
  for (const auto& [shard, session] : job->shards)
    session->connection->bye(
        wire::ByeReason::kJobDeleted,
        "job '" + job->key.job + "' was deleted by uid " + std::to_string(caller.uid));
  job->shards.clear();
  jobs_.erase(job->key);
  return {};
}

std::vector<SessionView> Sessions::sessions(const Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<SessionView> views;
  for (const auto& [id, session] : sessions_) {
    if (session->closed || session->job == nullptr || session->feed == nullptr ||
        !visible(caller, *session->job))
      continue;
    const Feed::View feed = session->feed->view();
    const delivery::Peer& peer = session->connection->peer();
    views.push_back({.id = id,
                     .uid = peer.uid,
                     .pid = peer.pid,
                     .client = session->connection->client(),
                     .job = session->job->key.job,
                     .pipeline = session->job->key.pipeline,
                     .shard = session->shard,
                     .num_shards = session->job->timeline.num_shards(),
                     .epoch = feed.next.epoch,
                     .step = feed.next.step,
                     .credits = session->feed->credits(),
                     .leases = feed.leases,
                     .ready = feed.ready,
                     .batches = feed.batches,
                     .arena_bytes = feed.arena_bytes});
  }
  return views;
}

Status Sessions::evict(const Caller& caller, std::uint64_t id, const std::string& reason) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->closed || found->second->job == nullptr ||
      !visible(caller, *found->second->job))
    return Status(Code::kNotFound, "there is no session " + std::to_string(id) + " that uid " +
                                       std::to_string(caller.uid) +
                                       " may end; 'spdlctl get sessions' lists what there is");
  found->second->connection->bye(
      wire::ByeReason::kEvicted,
      "ended by uid " + std::to_string(caller.uid) + (reason.empty() ? "" : ": " + reason));
  leave(found->second);
  return {};
}

std::vector<StageView> Sessions::stages(const Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<StageView> views;
  for (const auto& entry : jobs_) {
    const JobPtr& job = entry.second;
    if (!visible(caller, *job)) continue;
    const auto add = [&](const engine::StagePlan& stage, const engine::StageStats& stats) {
      const engine::StageSnapshot now = stats.snapshot();
      views.push_back({.job = job->key.job,
                       .pipeline = job->key.pipeline,
                       .stage = stage.name,
                       .tasks = now.tasks,
                       .failures = now.failures,
                       .busy_s = seconds(now.busy),
                       .wait_s = seconds(now.wait),
                       .in_flight = now.in_flight,
                       .concurrency = static_cast<std::uint32_t>(
                           stage.concurrency > 0 ? stage.concurrency
                                                 : static_cast<int>(deps_.executor.threads())),
                       .p50_us = microseconds(now.p50),
                       .p99_us = microseconds(now.p99)});
    };
    add(job->run->plan().fetch, job->run->fetch_stats());
    add(job->run->plan().process, job->run->process_stats());
  }
  return views;
}

std::vector<FailureView> Sessions::failures(const Caller& caller) const {
  std::vector<JobPtr> seen;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, job] : jobs_) {
      if (visible(caller, *job)) seen.push_back(job);
    }
  }
  std::vector<FailureView> views;
  for (const JobPtr& job : seen) {
    for (const engine::SampleFailure& failure : job->failures.recent())
      views.push_back({.job = job->key.job,
                       .pipeline = job->key.pipeline,
                       .epoch = failure.epoch,
                       .position = failure.position,
                       .item = failure.item,
                       .uri = failure.uri,
                       .code = std::string(code_name(failure.status.code())),
                       .message = failure.status.message(),
                       .replaced_by = failure.replaced_by});
  }
  return views;
}

Sessions::Totals Sessions::totals() const {
  MutexLock lock(mutex_);
  Totals totals = past_;
  totals.jobs = static_cast<std::uint32_t>(jobs_.size());
  for (const auto& [id, session] : sessions_) {
    if (session->feed == nullptr) continue;
    const Feed::View view = session->feed->view();
    totals.batches += view.batches;
    totals.rows += view.rows;
    if (!session->closed) ++totals.sessions;
  }
  return totals;
}

}  // namespace spdld::session

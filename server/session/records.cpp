// SPDX-License-Identifier: Apache-2.0
// How jobs are made, anew and of their records: the part of Sessions that outlives the daemon.
#include "session/records.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

// A job whose daemon died so long ago is not what a fresh rank of its name belongs to.
constexpr std::uint64_t kStillRunningMs = 120'000;

// Whether the process may come to finish a shard that a resize takes away, of a job that others
// still read. Sessions::finishes_shard() decides it once the job is made.
bool may_finish_shard(const store::StoredJob& stored, const delivery::AttachRequest& request) {
  const auto has_had = [&](const store::StoredCut& cut) {
    return cut.num_shards == request.num_shards;
  };
  return !stored.ended && !stored.cuts.empty() && request.start == wire::StartMode::kCursor &&
         request.shard >= stored.cuts.back().num_shards &&
         job::StepAt{request.cursor.epoch, request.cursor.step} < stored.cuts.back().from &&
         std::any_of(stored.cuts.begin(), stored.cuts.end(), has_had);
}

bool same_facts(const store::StoredJob& stored, const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = stored.cuts.empty() ? 0 : stored.cuts.back().num_shards;
  return request.replicas == stored.replicas &&
         same_vars(stored.first_vars, stored.vars, request.vars) &&
         request.batch_size == stored.batch_size &&
         (request.num_shards.value_or(num_shards) == num_shards ||
          may_finish_shard(stored, request)) &&
         static_cast<std::uint64_t>(
             request.seed.value_or(static_cast<std::int64_t>(stored.seed))) == stored.seed;
}

Status senseless() {
  return Status(Code::kDataLoss, "its record makes no sense; delete the job and create it anew");
}

Result<stream::Timeline> timeline_of(const std::vector<store::StoredCut>& stored,
                                     const std::vector<pipeline::PhasePtr>& phases) {
  std::vector<stream::Timeline::Cut> cuts;
  for (const store::StoredCut& cut : stored) {
    if (cut.phase >= phases.size() || cut.num_shards < 1 || cut.num_shards > kMaxShards)
      return tl::unexpected<Status>(senseless());
    const pipeline::PhasePtr& phase = phases[cut.phase];
    if (cut.position > phase->items)
      return error(Code::kFailedPrecondition,
                   "it goes on at position " + std::to_string(cut.position) +
                       ", and the dataset has " + counted(phase->items, "item") +
                       " now; bring the dataset back and restart, or create the job anew");
    cuts.push_back({.from = cut.from,
                    .position = cut.position,
                    .num_shards = cut.num_shards,
                    .phase = phase,
                    .left_out = cut.left_out,
                    .anew_from = cut.anew_from});
  }
  if (cuts.empty()) return tl::unexpected<Status>(senseless());
  return stream::Timeline(std::move(cuts));
}

// Behind the moves that the job has already.
Status check_move(const store::StoredMove& move, const Job& job, const stream::Timeline& before) {
  const bool counts_on = move.number > move.after && move.number > job.state.last_move &&
                         job.state.moves.size() < Job::kMostMoves;
  if (counts_on && before.check(move.from, 0).ok() && job.state.timeline.check(move.to, 0).ok())
    return {};
  return senseless();
}

}  // namespace

void take_over(stream::Timeline& timeline, const delivery::AttachRequest& request,
               job::StepAt ledger, std::uint32_t num_shards) {
  const bool by_cursor = request.start == wire::StartMode::kCursor;
  timeline.level(by_cursor ? job::StepAt{request.cursor.epoch, request.cursor.step} : ledger);
  timeline.resize({}, 0, num_shards);
}

store::StoredPipeline stored_pipeline(const pipeline::PipelineVersion& pipeline) {
  return {.id = pipeline.id(),
          .version = pipeline.version,
          .owner = pipeline.owner.uid,
          .request = pipeline.request};
}

store::StoredRevision stored_revision(const pipeline::PipelineVersion& pipeline, uid_t applied_by,
                                      std::string note) {
  return {.version = pipeline.version,
          .applied_unix_ms = unix_ms(),
          .applied_by = applied_by,
          .content_digest = pipeline.content_digest,
          .note = std::move(note),
          .request = pipeline.request};
}

store::StoredPhase stored_phase(const pipeline::Phase& phase) {
  const pipeline::PipelineVersion& pipeline = *phase.pipeline;
  return {.version = pipeline.version,
          .owner = pipeline.owner.uid,
          .request = pipeline.request,
          .batch_size = phase.batch,
          .overrides = phase.overrides,
          .reader = pipeline.reader};
}

Result<std::shared_ptr<engine::SampleCache>> Sessions::open_cache(
    const pipeline::PipelineVersion& pipeline) {
  auto cache = deps_.catalogue.open_cache(pipeline);
  if (cache || (cache.error().code() != Code::kResourceExhausted &&
                cache.error().code() != Code::kUnavailable))
    return cache;
  streams_.drop_ended();
  return deps_.catalogue.open_cache(pipeline);
}

Result<pipeline::PhasePtr> Sessions::make_phase(const pipeline::PipelinePtr& pipeline,
                                                std::uint64_t seed,
                                                std::set<std::string> overrides) {
  const engine::Plan& plan = *pipeline->plan;
  const std::uint64_t items = pipeline->source->size();
  SPDLD_ASSIGN(std::shared_ptr<engine::SampleCache> cache, open_cache(*pipeline));
  SPDLD_ASSIGN(source::Sampler sampler, pipeline->sampler(seed));
  auto phase = std::make_shared<pipeline::Phase>();
  phase->items = items;
  phase->tail = plan.spec.batch.last;
  phase->batch = static_cast<std::uint64_t>(plan.spec.batch.size);
  phase->content = pipeline->work_digest;
  phase->seed = seed;
  phase->pipeline = pipeline;
  phase->overrides = std::move(overrides);
  if (cache != nullptr) phase->cache_use = std::make_shared<engine::SampleCache::Use>(cache);
  phase->run = std::make_shared<engine::Run>(pipeline->plan, pipeline->source, std::move(sampler),
                                             seed, deps_.executor.pool(), engine::RunLimits{},
                                             deps_.clock, std::move(cache));
  return phase;
}

KeptFailures Sessions::kept_failures(const job::JobKey& key) {
  KeptFailures kept;
  if (const auto last = deps_.store.last_failure(key)) kept.last = *last;
  if (auto replaced = deps_.store.replaced(key)) {
    kept.replaced = std::move(*replaced);
  } else {
    log::warn(about(key), "{}; the replacement budget of job '{}' starts anew",
              replaced.error().message(), key.job);
  }
  MutexLock lock(mutex_);
  for (const store::StoredJob& ended : ended_jobs_) {
    if (ended.key != key) continue;
    if (!ended.failures.empty()) kept.last = std::max(kept.last, ended.failures.back().number);
    kept.replaced.insert(ended.replaced.begin(), ended.replaced.end());
  }
  return kept;
}

Result<JobPtr> Sessions::make_job(job::JobKey key, stream::Timeline timeline, std::uint64_t seed,
                                  bool is_private, KeptFailures failures) {
  const pipeline::PipelineVersion& pipeline = *timeline.cuts().front().phase->pipeline;
  auto job = std::make_shared<Job>(next_tag_.fetch_add(1, std::memory_order_relaxed),
                                   std::move(key), std::move(timeline), seed,
                                   pipeline.replace_budget(), std::move(failures));
  job->is_private = is_private;
  job->absent = pipeline.plan->spec.delivery.absent_replica;
  for (const stream::Timeline::Cut& cut : job->state.timeline.cuts()) {
    if (job->state.timeline.steps_per_epoch(cut.from) > 0) continue;
    return error(Code::kFailedPrecondition,
                 "pipeline '" + job->key.pipeline + "' has " + counted(cut.phase->items, "item") +
                     ", and " + counted(job->state.timeline.num_shards(), "shard") +
                     " with batches of " + std::to_string(cut.phase->batch) +
                     " do not fill a step with them: lower the batch size or the number of shards, "
                     "or set 'batch: {last: pad}'");
  }
  return job;
}

Result<JobPtr> Sessions::make_job(job::JobKey key, const pipeline::PipelinePtr& pipeline,
                                  std::uint64_t seed, std::uint32_t num_shards, bool is_private,
                                  KeptFailures failures) {
  SPDLD_ASSIGN(pipeline::PhasePtr phase, make_phase(pipeline, seed));
  return make_job(std::move(key), stream::Timeline(std::move(phase), num_shards), seed, is_private,
                  std::move(failures));
}

Result<JobPtr> Sessions::rebuild(const store::StoredJob& stored,
                                 const std::optional<Credentials>& reader) {
  std::vector<pipeline::PhasePtr> phases;
  for (const store::StoredPhase& kept : stored.phases) {
    SPDLD_ASSIGN(const pipeline::PipelinePtr pipeline,
                 deps_.catalogue.rebuild(job::owner_of(stored.key.pipeline, kept.owner),
                                         kept.request, kept.version, kept.batch_size,
                                         reader.value_or(kept.reader), nullptr));
    SPDLD_ASSIGN(pipeline::PhasePtr phase, make_phase(pipeline, stored.seed, kept.overrides));
    phases.push_back(std::move(phase));
  }
  SPDLD_ASSIGN(stream::Timeline timeline, timeline_of(stored.cuts, phases));
  SPDLD_ASSIGN(const JobPtr job, make_job(stored.key, std::move(timeline), stored.seed, false,
                                          kept_failures(stored.key)));
  job->declared = stored.declared;
  job->incarnation = stored.incarnation;
  job->replicas = stored.replicas;
  job->epochs = stored.epochs;
  job->state.open_epochs = stored.open_epochs;
  job->max_epochs = stored.max_epochs;
  job->state.limits = stored.limits;
  job->state.vars = stored.vars;
  job->first_vars = stored.first_vars;
  job->batch_size = stored.batch_size;
  // Since it was sent there the epoch may have become shorter, by larger batches.
  const bool is_step = stored.start.step <= job->state.timeline.end_step(stored.start.epoch);
  job->state.start = is_step ? stored.start : job::StepAt{stored.start.epoch + 1, 0};
  for (const store::StoredMove& move : stored.moves) {
    SPDLD_ASSIGN(stream::Timeline before, timeline_of(move.before, phases));
    SPDLD_TRY(check_move(move, *job, before));
    job->state.moves.push_back({.number = move.number,
                                .after = move.after,
                                .from = move.from,
                                .to = move.to,
                                .before = std::move(before)});
    job->state.last_move = move.number;
  }
  job->state.move_count = std::max(stored.move_count, job->state.last_move);
  job->membership.restore(stored.members);
  job->roll->reset(stored.done);
  // The old listing was never written to disk, so the dataset was listed anew. The new listing
  // counts from now on.
  job->record_is_old =
      std::any_of(stored.phases.begin(), stored.phases.end(),
                  [](const store::StoredPhase& phase) { return phase.request.dataset.empty(); });
  job->recorded_unix_ms = stored.kept_unix_ms;
  SPDLD_ASSIGN(const auto position, kept_position(stored.key));
  if (position) {
    job->kept = position;
    job->ledger = {.at = position->at,
                   .position = position->position,
                   .kept_unix_ms = position->kept_unix_ms,
                   .conflict = {}};
  }
  return job;
}

Status Sessions::restore(const std::function<void(std::string)>& warn) {
  const std::uint64_t now = unix_ms();
  SPDLD_ASSIGN(const std::vector<job::JobKey> running,
               deps_.store.running_jobs(now - std::min(now, kStillRunningMs)));
  {
    MutexLock lock(mutex_);
    expected_.insert(running.begin(), running.end());
  }
  SPDLD_ASSIGN(const std::vector<store::StoredJob> kept, deps_.store.declared_jobs());
  for (const store::StoredJob& stored : kept) {
    auto made = rebuild(stored);
    MutexLock lock(mutex_);
    if (made) {
      log::info(about(stored.key), "job '{}' on pipeline '{}' restored: it goes on at {}",
                stored.key.job, stored.key.pipeline, place_text((*made)->here()));
      jobs_[stored.key] = *made;
      limits_changed(**made);
      continue;
    }
    broken_[stored.key] = made.error().message();
    warn("job '" + stored.key.job + "' on pipeline '" + stored.key.pipeline +
         "' cannot go on: " + made.error().message());
  }
  return {};
}

Result<std::optional<store::StoredPosition>> Sessions::kept_position(const job::JobKey& key) {
  {
    MutexLock lock(mutex_);
    // The last one: a job may have ended several times since they were written.
    const auto last =
        std::find_if(ended_positions_.rbegin(), ended_positions_.rend(),
                     [&](const store::StoredPosition& ended) { return ended.key == key; });
    if (last != ended_positions_.rend()) return std::optional(*last);
  }
  return deps_.store.position(key);
}

Result<std::optional<store::StoredJob>> Sessions::kept_job(const job::JobKey& key) {
  {
    MutexLock lock(mutex_);
    const auto last = std::find_if(ended_jobs_.rbegin(), ended_jobs_.rend(),
                                   [&](const store::StoredJob& ended) { return ended.key == key; });
    if (last != ended_jobs_.rend()) {
      store::StoredJob ended = *last;
      ended.kept_unix_ms = unix_ms();  // it is about to be
      return std::optional(std::move(ended));
    }
  }
  return deps_.store.job(key);
}

// The same consumers again, or others who go on where it was; a fresh start is the same job only if
// it runs just now, and its daemon died.
bool Sessions::goes_on_with(const store::StoredJob& stored,
                            const delivery::AttachRequest& request) {
  if (request.reconnect || request.start != wire::StartMode::kFresh) return true;
  const bool runs = !stored.ended && stored.incarnation == request.incarnation &&
                    unix_ms() < stored.kept_unix_ms + kStillRunningMs;
  return runs && same_facts(stored, request);
}

Result<JobPtr> Sessions::revive(const job::JobKey& key, const delivery::AttachRequest& request,
                                const Credentials& reader) {
  {
    MutexLock lock(mutex_);
    if (jobs_.contains(key)) return JobPtr();
    if (const auto broken = broken_.find(key); broken != broken_.end())
      return error(Code::kFailedPrecondition,
                   "job '" + key.job + "' was declared and cannot go on: " + broken->second +
                       " ('spdlctl delete job " + key.job + "' forgets it)");
  }
  SPDLD_ASSIGN(std::optional<store::StoredJob> stored, kept_job(key));
  if (!stored) return JobPtr();
  const bool same = same_facts(*stored, request);
  // Another run of that name: where the earlier one was is nothing to it.
  if (!goes_on_with(*stored, request)) return JobPtr();
  if (!request.reconnect && !same) return inherit(*std::move(stored), request, reader);
  if (stored->ended && !request.reconnect) stored->incarnation = request.incarnation;
  auto job = rebuild(*stored, reader);
  if (!job)
    return tl::unexpected<Status>(job.error().with_context("job '" + key.job + "' cannot go on"));
  log::info(about(key), "job '{}' on pipeline '{}' restored from its record: it was at {}", key.job,
            key.pipeline, place_text((*job)->here()));
  if (stored->ended) (*job)->membership.stop_expecting();
  return *job;
}

Result<JobPtr> Sessions::inherit(store::StoredJob stored, const delivery::AttachRequest& request,
                                 const Credentials& reader) {
  if (!same_vars(stored.first_vars, stored.vars, request.vars) ||
      (request.seed && static_cast<std::uint64_t>(*request.seed) != stored.seed))
    return JobPtr();
  if (request.batch_size != stored.batch_size) {
    stored.batch_size = request.batch_size;
    for (store::StoredPhase& phase : stored.phases) phase.batch_size = request.batch_size;
  }
  for (store::StoredCut& cut : stored.cuts)
    cut.num_shards = request.num_shards.value_or(stored.cuts.back().num_shards);
  // No step of the old deal means anything in this one.
  stored.start.step = 0;
  stored.replicas = request.replicas;
  stored.incarnation = request.incarnation;
  stored.members.clear();
  stored.done.clear();
  stored.moves.clear();
  auto job = rebuild(stored, reader);
  if (!job)
    return tl::unexpected<Status>(
        job.error().with_context("job '" + stored.key.job + "' cannot go on"));
  stream::Timeline& timeline = (*job)->state.timeline;
  take_over(timeline, request, (*job)->ledger.at,
            request.num_shards.value_or(timeline.num_shards()));
  if (timeline.steps_per_epoch((*job)->state.start) == 0)
    return JobPtr();  // said when it is made anew
  (*job)->record_is_old = true;
  return job;
}

}  // namespace spdld::session

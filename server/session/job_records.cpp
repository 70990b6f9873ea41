// SPDX-License-Identifier: Apache-2.0
#include "session/job_records.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "engine/explain.h"
#include "session/about.h"
#include "stream/span.h"

namespace spdld::session {
namespace {

// A job whose daemon died so long ago is not what a fresh rank of its name belongs to.
constexpr std::uint64_t kStillRunningMs = 120'000;

std::uint32_t shards_of(const job::ScheduleRecord& schedule) {
  std::uint32_t shards = schedule.base.shards;
  for (const job::Edit& edit : schedule.edits) {
    if (const auto* const resize = std::get_if<job::Edit::Resize>(&edit.change))
      shards = resize->shards;
  }
  return shards;
}

bool same_order(const store::StoredJob& stored, const delivery::AttachRequest& request) {
  return same_vars(stored.first_vars, stored.vars, request.vars) &&
         static_cast<std::uint64_t>(
             request.seed.value_or(static_cast<std::int64_t>(stored.seed))) == stored.seed;
}

bool same_facts(const store::StoredJob& stored, const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = shards_of(stored.schedule);
  return same_order(stored, request) && request.replicas == stored.replicas &&
         request.batch_size == stored.batch_size &&
         request.num_shards.value_or(num_shards) == num_shards;
}

// The version that is to go on in another batch size: the last one of the cursor's order.
std::uint32_t version_for(const store::StoredJob& stored, const std::string& order) {
  std::uint32_t last = stored.phases.rbegin()->first;
  for (const auto& [version, facts] : stored.schedule.versions) {
    if (facts.order == order && stored.phases.contains(version)) last = version;
  }
  return last;
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

}  // namespace

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

store::StoredJob stored_job(const Job& job) { return stored_job(job, job.state, job.membership); }

store::StoredJob stored_job(const Job& job, const JobState& as, const job::Membership& members_as) {
  job::Turn granted = 0;
  std::optional<job::Turn> due;
  for (const SessionPtr& session : job.attached()) {
    const Grant::Bound bound = session->consumer->bound_grant(as.plan->schedule);
    granted = std::max(granted, bound.granted);
    due = std::max(due.value_or(0), bound.due);
  }
  store::StoredJob stored{.key = job.key,
                          .declared = job.declared,
                          .ended = !job.declared && job.members.empty() && !members_as.expected(),
                          .incarnation = job.incarnation,
                          .seed = job.seed,
                          .replicas = job.replicas,
                          .epochs = job.epochs,
                          .open_epochs = as.open_epochs,
                          .max_epochs = job.max_epochs,
                          .limits = as.limits,
                          .first_limits = job.first_limits,
                          .vars = as.vars,
                          .first_vars = job.first_vars,
                          .batch_size = job.batch_size,
                          .start = as.start,
                          .phases = {},
                          .schedule = as.plan->schedule.record(),
                          .members = members_as.record(),
                          .reserved = members_as.to_reserve(granted, due.value_or(job::kNoTurn)),
                          .reached = members_as.reached(),
                          .done = job.presence->done(),
                          .kept_unix_ms = 0};
  for (const auto& [version, phase] : as.plan->phases)
    stored.phases.emplace(version, stored_phase(*phase));
  return stored;
}

store::StoredPosition stored_position(const Job& job, const job::Progress& at) {
  return {.key = job.key,
          .cursor = {.order = at.order,
                     .at = at.at,
                     .position = at.position,
                     .run = job.schedule().run(),
                     .branch = job.schedule().branch(),
                     .turn = at.released},
          .kept_unix_ms = 0};
}

JobRecords::JobRecords(const SessionsDeps& deps, JobTable& table, stream::Streams& streams)
    : deps_(deps), table_(table), streams_(streams) {}

Result<std::shared_ptr<engine::SampleCache>> JobRecords::open_cache(
    const pipeline::PipelineVersion& pipeline) {
  auto cache = deps_.catalogue.open_cache(pipeline);
  if (cache || (cache.error().code() != Code::kResourceExhausted &&
                cache.error().code() != Code::kUnavailable))
    return cache;
  streams_.drop_ended();
  return deps_.catalogue.open_cache(pipeline);
}

Result<pipeline::PhasePtr> JobRecords::make_phase(uid_t user, const pipeline::PipelinePtr& pipeline,
                                                  std::uint64_t seed,
                                                  std::set<std::string> overrides,
                                                  std::uint32_t prefetch) {
  const engine::Plan& plan = *pipeline->plan;
  // What ended streams held of the functions, so that changed code is seen to be changed.
  if (!plan.calls.empty()) streams_.drop_ended();
  SPDLD_ASSIGN(RowCallers callers, pipeline::open_callers(deps_.code, *pipeline, user));
  SPDLD_ASSIGN(std::shared_ptr<engine::SampleCache> cache, open_cache(*pipeline));
  SPDLD_ASSIGN(source::Sampler sampler, pipeline->sampler(seed));
  auto phase = std::make_shared<pipeline::Phase>();
  phase->items = pipeline->source->size();
  phase->repeat = plan.spec.shuffle.repeat;
  phase->tail = plan.spec.batch.last;
  phase->batch = static_cast<std::uint64_t>(plan.spec.batch.size);
  phase->content = pipeline->work_digest;
  // A function may do for one user what it does not do for another.
  if (!callers.empty()) phase->content += " of " + std::to_string(user);
  phase->seed = seed;
  phase->prefetch = prefetch;
  phase->pipeline = pipeline;
  phase->closed = pipeline->closed;
  phase->overrides = std::move(overrides);
  if (cache != nullptr) phase->cache_use = std::make_shared<engine::SampleCache::Use>(cache);
  phase->run = std::make_shared<engine::Run>(pipeline->plan, pipeline->source, std::move(sampler),
                                             seed, deps_.executor.pool(), engine::RunLimits{},
                                             deps_.clock, std::move(cache), std::move(callers));
  return phase;
}

KeptFailures JobRecords::kept_failures(const job::JobKey& key) {
  KeptFailures kept;
  if (const auto last = deps_.store.last_failure(key)) kept.last = *last;
  if (auto replaced = deps_.store.replaced(key)) {
    kept.replaced = std::move(*replaced);
  } else {
    log::warn(about(key), "{}; the replacement budget of job '{}' starts anew",
              replaced.error().message(), key.job);
  }
  MutexLock lock(table_.mutex());
  for (const store::StoredJob& ended : table_.ended().records()) {
    if (ended.key != key) continue;
    if (!ended.failures.empty()) kept.last = std::max(kept.last, ended.failures.back().number);
    kept.replaced.insert(ended.replaced.begin(), ended.replaced.end());
  }
  return kept;
}

Result<JobPtr> JobRecords::make_job(job::JobKey key, const pipeline::PipelinePtr& pipeline,
                                    std::uint64_t seed, std::uint32_t num_shards, bool is_private,
                                    KeptFailures failures) {
  SPDLD_ASSIGN(pipeline::PhasePtr phase, make_phase(key.uid, pipeline, seed));
  if (job::steps_per_epoch(stream::facts_of(*phase), num_shards) == 0)
    return error(Code::kFailedPrecondition,
                 "pipeline '" + key.pipeline + "' has " +
                     engine::items_text(phase->items, phase->repeat) + ", and " +
                     counted(num_shards, "shard") + " with batches of " +
                     std::to_string(phase->batch) +
                     " do not fill a step with them: lower the batch size or the number of shards, "
                     "or set 'batch: {last: pad}'");
  auto job = std::make_shared<Job>(next_tag_.fetch_add(1, std::memory_order_relaxed),
                                   std::move(key), new_run(phase, {.shards = num_shards}), seed,
                                   pipeline->replace_budget(), std::move(failures));
  job->is_private = is_private;
  job->absent = pipeline->plan->spec.delivery.absent_replica;
  return job;
}

JobRecords::Opening JobRecords::opening(const job::JobKey& key, const Credentials& reader,
                                        const pipeline::ListingAsker& asker) {
  return [this, &key, &reader, &asker](const store::StoredPhase& kept) {
    return deps_.catalogue.rebuild(
        job::owner_of(key.pipeline, kept.owner), kept.request,
        {.version = kept.version, .batch_size = kept.batch_size, .reader = reader}, asker);
  };
}

pipeline::Asked<JobPlanPtr> JobRecords::rebuild_plan(const store::StoredJob& stored,
                                                     const Opening& open) {
  std::map<std::uint32_t, pipeline::PipelinePtr> pipelines;
  for (const auto& [version, kept] : stored.phases) {
    SPDLD_ASSIGN(const std::optional<pipeline::PipelinePtr> pipeline, open(kept));
    if (!pipeline) return std::optional<JobPlanPtr>();
    pipelines[version] = *pipeline;
  }
  std::map<std::uint32_t, pipeline::PhasePtr> phases;
  for (const auto& [version, kept] : stored.phases) {
    SPDLD_ASSIGN(phases[version],
                 make_phase(stored.key.uid, pipelines[version], stored.seed, kept.overrides));
  }
  for (const auto& [version, facts] : stored.schedule.versions) {
    const auto phase = phases.find(version);
    if (phase == phases.end())
      return error(Code::kDataLoss, "its record makes no sense; delete the job and create it anew");
    const job::VersionFacts now = stream::facts_of(*phase->second);
    if (now == facts) continue;
    return error(Code::kFailedPrecondition,
                 "its record is of " + counted(facts.items, "item") + ", and the dataset has " +
                     counted(now.items, "item") +
                     " now, or others; bring the dataset back and restart, or create the job anew");
  }
  SPDLD_ASSIGN(job::Schedule schedule, job::Schedule::restored(stored.schedule));
  return std::optional(std::make_shared<const JobPlan>(
      JobPlan{.schedule = std::move(schedule), .phases = std::move(phases)}));
}

Result<JobPtr> JobRecords::rebuild(const store::StoredJob& stored, JobPlanPtr plan) {
  const pipeline::PipelineVersion& pipeline = *plan->phases.begin()->second->pipeline;
  auto job =
      std::make_shared<Job>(next_tag_.fetch_add(1, std::memory_order_relaxed), stored.key,
                            with_prefetch(*plan, stored.limits.prefetch.value_or(0)), stored.seed,
                            pipeline.replace_budget(), kept_failures(stored.key));
  job->absent = pipeline.plan->spec.delivery.absent_replica;
  job->declared = stored.declared;
  job->incarnation = stored.incarnation;
  job->replicas = stored.replicas;
  job->epochs = stored.epochs;
  job->state.open_epochs = stored.open_epochs;
  job->max_epochs = stored.max_epochs;
  job->state.limits = stored.limits;
  job->first_limits = stored.first_limits;
  job->state.vars = stored.vars;
  job->first_vars = stored.first_vars;
  job->batch_size = stored.batch_size;
  job->state.start = stored.start;
  // The old listing was never written to disk, so the dataset was listed anew. The new listing
  // counts from now on.
  job->record.is_old =
      std::any_of(stored.phases.begin(), stored.phases.end(),
                  [](const auto& phase) { return phase.second.request.dataset.empty(); });
  job->record.unix_ms = stored.kept_unix_ms;
  SPDLD_ASSIGN(const auto position, kept_position(stored.key));
  if (position && position->cursor.run == job->schedule().run()) job->ledger.keep(*position);
  return job;
}

Status JobRecords::restore(const std::function<void(std::string)>& warn) {
  const std::uint64_t now = unix_ms();
  SPDLD_ASSIGN(const std::vector<job::JobKey> running,
               deps_.store.running_jobs(now - std::min(now, kStillRunningMs)));
  {
    MutexLock lock(table_.mutex());
    table_.expected().insert(running.begin(), running.end());
  }
  SPDLD_ASSIGN(const std::vector<store::StoredJob> kept, deps_.store.declared_jobs());
  for (const store::StoredJob& stored : kept) {
    const auto made = rebuild_as_it_was(
        stored, [&](const store::StoredPhase& phase) -> pipeline::Asked<pipeline::PipelinePtr> {
          SPDLD_ASSIGN(
              pipeline::PipelinePtr recalled,
              deps_.catalogue.recall(job::owner_of(stored.key.pipeline, phase.owner), phase.request,
                                     {.version = phase.version,
                                      .batch_size = phase.batch_size,
                                      .reader = phase.reader}));
          return std::optional(std::move(recalled));
        });
    MutexLock lock(table_.mutex());
    if (made) {
      const JobPtr& job = **made;
      log::info(about(stored.key), "job '{}' on pipeline '{}' restored: it goes on at {}",
                stored.key.job, stored.key.pipeline, place_text(job->here()));
      table_.jobs()[stored.key] = job;
      table_.limits_changed(*job);
      continue;
    }
    table_.broken()[stored.key] = made.error().message();
    warn("job '" + stored.key.job + "' on pipeline '" + stored.key.pipeline +
         "' cannot go on: " + made.error().message());
  }
  return {};
}

Result<std::optional<store::StoredPosition>> JobRecords::kept_position(const job::JobKey& key) {
  {
    MutexLock lock(table_.mutex());
    if (auto last = table_.ended().position(key)) {
      last->kept_unix_ms = unix_ms();  // it is about to be
      return last;
    }
  }
  return deps_.store.position(key);
}

Result<std::optional<store::StoredJob>> JobRecords::kept_job(const job::JobKey& key) {
  {
    MutexLock lock(table_.mutex());
    if (auto ended = table_.ended().record(key)) {
      ended->kept_unix_ms = unix_ms();  // it is about to be
      return ended;
    }
  }
  return deps_.store.job(key);
}

// The same consumers again, or others who go on where it was; a fresh start is the same job only if
// it runs just now, and its daemon died.
bool JobRecords::goes_on_with(const store::StoredJob& stored,
                              const delivery::AttachRequest& request) {
  if (request.reconnect || request.start != wire::StartMode::kFresh) return true;
  const bool runs = !stored.ended && stored.incarnation == request.incarnation &&
                    unix_ms() < stored.kept_unix_ms + kStillRunningMs;
  return runs && same_facts(stored, request);
}

pipeline::Asked<JobRecords::Revived> JobRecords::revive(const job::JobKey& key,
                                                        const delivery::AttachRequest& request,
                                                        const Credentials& reader,
                                                        const pipeline::ListingAsker& asker) {
  {
    MutexLock lock(table_.mutex());
    if (table_.jobs().contains(key)) return std::optional(Revived{.runs = true});
    if (const auto broken = table_.broken().find(key); broken != table_.broken().end())
      return error(Code::kFailedPrecondition,
                   "job '" + key.job + "' was declared and cannot go on: " + broken->second +
                       " ('spdlctl delete job " + key.job + "' forgets it)");
  }
  SPDLD_ASSIGN(std::optional<store::StoredJob> stored, kept_job(key));
  // Another run of that name: where the earlier one was is nothing to it.
  if (!stored || !goes_on_with(*stored, request)) return std::optional(Revived());
  if (!request.reconnect && !same_order(*stored, request)) return std::optional(Revived());
  const bool same_batch = request.reconnect || request.batch_size == stored->batch_size;
  if (!request.reconnect && (stored->ended || !same_batch))
    stored->incarnation = request.incarnation;
  const Opening open = opening(key, reader, asker);
  const auto made =
      same_batch ? rebuild_as_it_was(*stored, open) : inherit(*std::move(stored), request, open);
  if (!made)
    return tl::unexpected<Status>(made.error().with_context("job '" + key.job + "' cannot go on"));
  if (!*made) return std::optional<Revived>();
  Job& job = ***made;
  if (!request.reconnect && job.replicas != request.replicas) {
    job.replicas = request.replicas;
    job.membership.start_again();
  }
  log::info(about(key), "job '{}' on pipeline '{}' restored from its record: it was at {}", key.job,
            key.pipeline, place_text(job.here()));
  return std::optional(Revived{.job = **made});
}

pipeline::Asked<JobPtr> JobRecords::rebuild_as_it_was(const store::StoredJob& stored,
                                                      const Opening& open) {
  SPDLD_ASSIGN(std::optional<JobPlanPtr> plan, rebuild_plan(stored, open));
  if (!plan) return std::optional<JobPtr>();
  SPDLD_ASSIGN(const JobPtr job, rebuild(stored, *std::move(plan)));
  job->membership.restore(stored.members, stored.reserved, stored.reached);
  job->presence->reset(stored.done);
  if (stored.ended) job->membership.stop_expecting();
  return std::optional(job);
}

pipeline::Asked<JobPtr> JobRecords::inherit(store::StoredJob stored,
                                            const delivery::AttachRequest& request,
                                            const Opening& open) {
  stored.batch_size = request.batch_size;
  store::StoredPhase phase = stored.phases.at(version_for(stored, request.order_digest));
  phase.batch_size = request.batch_size;
  SPDLD_ASSIGN(const std::optional<pipeline::PipelinePtr> pipeline, open(phase));
  if (!pipeline) return std::optional<JobPtr>();
  SPDLD_ASSIGN(const pipeline::PhasePtr made,
               make_phase(stored.key.uid, *pipeline, stored.seed, phase.overrides));
  const std::uint32_t num_shards = request.num_shards.value_or(shards_of(stored.schedule));
  stored.start.step = 0;  // no step of other batches means anything in these
  SPDLD_ASSIGN(const JobPtr job, rebuild(stored, new_run(made, {.shards = num_shards})));
  job->replicas = request.replicas;
  job->record.is_old = true;
  return std::optional(job);
}

}  // namespace spdld::session

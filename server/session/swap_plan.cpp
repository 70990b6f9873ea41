// SPDX-License-Identifier: Apache-2.0
#include "session/swap_plan.h"

#include <algorithm>
#include <utility>

#include "base/text/counted.h"
#include "engine/explain.h"
#include "pipeline/one_batch.h"
#include "session/swap_place.h"
#include "stream/span.h"

namespace spdld::session {
namespace {

// The variables that an operator gave for a job when it changed to `version`, if it did.
std::set<std::string> overrides_under(const JobPlan& plan, std::uint32_t version) {
  std::set<std::string> overrides;
  for (const auto& [number, phase] : plan.phases) {
    if (phase->version() == version) overrides = phase->overrides;
  }
  return overrides;
}

// The step of the trial batch for a swap at `at`, in an epoch of so many steps.
job::StepAt trial_step(const SwapAt& at, job::StepAt here, std::uint64_t steps) {
  job::StepAt trial = here;
  if (at.kind == SwapAt::Kind::kNextEpoch) trial = {here.epoch + 1, 0};
  if (at.kind == SwapAt::Kind::kStep) trial = at.step;
  return {trial.epoch, std::min(trial.step, steps - 1)};
}

}  // namespace

SwapVars SwapPlanner::vars_for(const Job& job, const SwapRequest& request) {
  return {
      .own = job.state.vars,
      .overrides = request.again ? overrides_under(*job.state.plan, *request.again) : request.vars};
}

Result<pipeline::PipelinePtr> SwapPlanner::variant_for(
    const pipeline::PipelinePtr& pipeline, const SwapVars& vars,
    std::optional<std::uint64_t> batch_size, const Credentials& reader,
    const pipeline::Catalogue::Progress& progress, pipeline::VariantFiles files) {
  // The others are in the pipeline's own request.
  pipeline::Variation counting{
      .vars = vars.own, .batch_size = batch_size, .reader = reader, .files = files};
  for (const std::string& name : vars.overrides) counting.vars.erase(name);
  return deps_.catalogue.variant(pipeline, counting, progress);
}

std::vector<StayingJob> SwapPlanner::staying(const job::Caller& caller,
                                             const pipeline::PipelinePtr& pipeline,
                                             const SwapRequest& request,
                                             const pipeline::Catalogue::Progress& progress) {
  struct Seen {
    std::string job;
    pipeline::PhasePtr last;
    SwapVars vars;
    std::optional<std::uint64_t> batch_size;
  };
  std::vector<Seen> seen;
  {
    MutexLock lock(table_.mutex());
    for (const JobPtr& job : table_.jobs_of(caller, pipeline->id()))
      seen.push_back({.job = job->key.job,
                      .last = job->state.plan->last_phase(),
                      .vars = vars_for(*job, request),
                      .batch_size = job->batch_size});
  }
  std::vector<StayingJob> staying;
  for (const Seen& of : seen) {
    const auto variant = variant_for(pipeline, of.vars, of.batch_size, of.last->reader(), progress);
    // Of one that it does not fit, the change would say so.
    if (variant && (*variant)->content_digest == of.last->pipeline->content_digest) continue;
    staying.push_back({.job = of.job, .version = of.last->version()});
  }
  return staying;
}

Result<PlannedSwap> SwapPlanner::plan(const JobPtr& job, const pipeline::PipelinePtr& pipeline,
                                      const SwapVars& vars, const SwapRequest& request,
                                      const pipeline::Catalogue::Progress& progress,
                                      pipeline::VariantFiles files) {
  std::optional<std::uint64_t> batch_size;
  pipeline::PhasePtr last;
  pipeline::PhasePtr before;  // the last change
  bool comes_before = false;  // it would: that need only not come
  std::uint32_t num_shards = 1;
  job::StepAt here;
  std::uint32_t prefetch = 0;
  {
    MutexLock lock(table_.mutex());
    batch_size = job->batch_size;
    last = job->state.plan->last_phase();
    const LastChange change = last_change(*job, job->furthest().turn);
    before = change.before;
    comes_before = change.lies_ahead;
    num_shards = job->num_shards();
    here = job->here();
    prefetch = job->state.limits.prefetch.value_or(0);
  }
  // The data is read with the rights of the job's consumers, which will get it, not of the caller.
  auto variant = variant_for(pipeline, vars, batch_size, last->reader(), progress, files);
  if (!variant)
    return tl::unexpected<Status>(variant.error().with_context("job '" + job->key.job + "'"));
  // Also where it changes nothing: whoever applied it last is asked about when the job comes back.
  SPDLD_TRY(pipeline::check_author(deps_.code, **variant, job->key.uid)
                .with_context("job '" + job->key.job + "'"));
  PlannedSwap swap{.job = job,
                   .phase = nullptr,
                   .vars = vars.own,
                   .allow_schema_change = request.allow_schema_change,
                   .base = last};
  if ((*variant)->content_digest == last->pipeline->content_digest) {
    swap.known = true;
    swap.phase = last;
    if (last->overrides == vars.overrides) return swap;
    // The same bytes, and from now on it is another's values that make them.
    auto said = std::make_shared<pipeline::Phase>(*last);
    said->overrides = vars.overrides;
    swap.phase = said;
    return swap;
  }
  const auto device_of = [](const pipeline::PipelineVersion& made) {
    return made.plan->spec.delivery.device;
  };
  if ((*variant)->work_digest == last->pipeline->work_digest &&
      device_of(**variant) == device_of(*last->pipeline)) {
    // The same work: the run goes on as it is, and by another name.
    auto renamed = std::make_shared<pipeline::Phase>(*last);
    renamed->pipeline = *variant;
    renamed->overrides = vars.overrides;
    swap.phase = renamed;
    swap.tuned = true;
    return swap;
  }
  if ((*variant)->content_digest == before->pipeline->content_digest &&
      before->overrides == vars.overrides) {
    swap.before = before;
    if (comes_before) {
      swap.phase = before;
      return swap;
    }
  }
  SPDLD_ASSIGN(swap.phase,
               records_.make_phase(job->key.uid, *variant, job->seed, vars.overrides, prefetch));
  const std::uint64_t steps = job::steps_per_epoch(stream::facts_of(*swap.phase), num_shards);
  if (steps == 0)
    return error(Code::kFailedPrecondition,
                 "job '" + job->key.job +
                     "': " + engine::items_text(swap.phase->items, swap.phase->repeat) +
                     " make no step of " + counted(num_shards, "shard") + " with batches of " +
                     std::to_string(swap.phase->batch) +
                     "; lower batch.size, resize the job, or say 'batch: {last: pad}'");
  // A version that does not work is found out while the old one still runs.
  if (request.at.kind == SwapAt::Kind::kStep) SPDLD_TRY(job::check_place(request.at.step));
  const job::StepAt at = trial_step(request.at, here, steps);
  const auto watched = [&](std::uint64_t made_rows, const std::string& what,
                           const std::vector<std::string>& pools) {
    {
      MutexLock lock(table_.mutex());
      runner_starts_.ask(*job, *swap.phase->run);
    }
    return !progress || progress(made_rows, what, pools);
  };
  const auto made = trials_.make(job->key.uid, **variant, swap.phase->run, at,
                                 swap.phase->sharding(num_shards).rows(at.step, 0), watched);
  if (!made)
    return tl::unexpected<Status>(
        made.error().with_context("job '" + job->key.job +
                                  "' goes on with what it has: a first batch of the new version "
                                  "could not be made"));
  SPDLD_TRY(gpus_.open_all(job, *swap.phase));
  return swap;
}

Result<std::vector<PlannedSwap>> SwapPlanner::plan(const job::Caller& caller,
                                                   const pipeline::PipelinePtr& pipeline,
                                                   const SwapRequest& request,
                                                   const pipeline::Catalogue::Progress& progress) {
  std::vector<JobPtr> jobs;
  {
    MutexLock lock(table_.mutex());
    if (!request.job.empty()) {
      auto job = table_.find_job(caller, {.job = request.job, .pipelines = {pipeline->id()}});
      if (!job && table_.find_job(caller, {.job = request.job, .pipelines = {pipeline->name()}}))
        return error(Code::kPermissionDenied,
                     "job '" + request.job + "' runs the shared pipeline '" + pipeline->name() +
                         "', which admins change, and " +
                         deps_.pipelines.trusted().who(caller.uid) +
                         " is not in access.admins: ask one, or change the job's own variables "
                         "from its ranks "
                         "(Loader.apply)");
      if (!job) return tl::unexpected<Status>(std::move(job).error());
      jobs.push_back(*std::move(job));
    } else {
      jobs = table_.jobs_of(caller, pipeline->id());
    }
  }
  std::vector<PlannedSwap> swaps;
  for (const JobPtr& job : jobs) {
    SwapVars vars;
    {
      MutexLock lock(table_.mutex());
      vars = vars_for(*job, request);
    }
    SPDLD_ASSIGN(PlannedSwap swap, plan(job, pipeline, vars, request, progress));
    swaps.push_back(std::move(swap));
  }
  return swaps;
}

}  // namespace spdld::session

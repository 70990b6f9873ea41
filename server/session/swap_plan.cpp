// SPDX-License-Identifier: Apache-2.0
// What jobs would run after a swap: found out, and tried, without a lock.
#include <algorithm>
#include <utility>

#include "base/text/counted.h"
#include "pipeline/one_batch.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

// The variables that an operator gave for a job when it changed to `version`, if it did.
std::set<std::string> overrides_under(const stream::Timeline& timeline, std::uint32_t version) {
  std::set<std::string> overrides;
  for (const stream::Timeline::Cut& cut : timeline.cuts()) {
    if (cut.phase->version() == version) overrides = cut.phase->overrides;
  }
  return overrides;
}

// Where a trial is made of what begins there.
job::StepAt trial_step(const SwapAt& at, job::StepAt here, const stream::Timeline& timeline) {
  job::StepAt trial = here;
  if (at.kind == SwapAt::Kind::kNextEpoch) trial = {here.epoch + 1, 0};
  if (at.kind == SwapAt::Kind::kStep) trial = at.step;
  return {trial.epoch, std::min(trial.step, timeline.end_step(trial.epoch) - 1)};
}

}  // namespace

std::vector<JobPtr> Sessions::jobs_of(const job::Caller& caller,
                                      const std::string& pipeline) const {
  std::vector<JobPtr> jobs;
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline == pipeline && visible(caller, *job)) jobs.push_back(job);
  }
  return jobs;
}

SwapVars Sessions::vars_for(const Job& job, const SwapRequest& request) const {
  return {.own = job.state.vars,
          .overrides =
              request.again ? overrides_under(job.state.timeline, *request.again) : request.vars};
}

Result<pipeline::PipelinePtr> Sessions::variant_for(const pipeline::PipelinePtr& pipeline,
                                                    const SwapVars& vars,
                                                    std::optional<std::uint64_t> batch_size,
                                                    const Credentials& reader,
                                                    const pipeline::Catalogue::Progress& progress,
                                                    pipeline::VariantFiles files) {
  // The others are in the pipeline's own request.
  std::map<std::string, std::string> counting = vars.own;
  for (const std::string& name : vars.overrides) counting.erase(name);
  return deps_.catalogue.variant(pipeline, counting, batch_size, reader, progress, files);
}

std::vector<StayingJob> Sessions::staying(const job::Caller& caller,
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
    MutexLock lock(mutex_);
    for (const JobPtr& job : jobs_of(caller, pipeline->id()))
      seen.push_back({.job = job->key.job,
                      .last = job->state.timeline.last_phase(),
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

Result<PlannedSwap> Sessions::plan_swap(const JobPtr& job, const pipeline::PipelinePtr& pipeline,
                                        const SwapVars& vars, const SwapRequest& request,
                                        const pipeline::Catalogue::Progress& progress,
                                        pipeline::VariantFiles files) {
  std::optional<std::uint64_t> batch_size;
  pipeline::PhasePtr last;
  pipeline::PhasePtr before;  // the last change
  bool comes_before = false;  // it would: that need only not come, or it is too late
  std::uint32_t num_shards = 1;
  job::StepAt here;
  {
    MutexLock lock(mutex_);
    batch_size = job->batch_size;
    last = job->state.timeline.last_phase();
    before = job->state.timeline.phase_before(job->state.timeline.last_change());
    num_shards = job->state.timeline.num_shards();
    here = job->here();
    if (request.at.kind == SwapAt::Kind::kStep) {
      const auto asked = asked_step(*job, without_last_change(*job), request.at, {});
      comes_before = asked && *asked <= job->state.timeline.last_change();
    }
  }
  // Whoever changes a job: it is the job's consumers who will have the data.
  auto variant = variant_for(pipeline, vars, batch_size, last->reader(), progress, files);
  if (!variant)
    return tl::unexpected<Status>(variant.error().with_context("job '" + job->key.job + "'"));
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
  if ((*variant)->work_digest == last->content &&
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
  SPDLD_ASSIGN(swap.phase, make_phase(*variant, job->seed, vars.overrides));
  const stream::Timeline timeline(swap.phase, num_shards);
  if (timeline.steps_per_epoch({}) == 0)
    return error(Code::kFailedPrecondition,
                 "job '" + job->key.job + "': " + counted(swap.phase->items, "item") +
                     " make no step of " + counted(num_shards, "shard") + " with batches of " +
                     std::to_string(swap.phase->batch) +
                     "; lower batch.size, resize the job, or say 'batch: {last: pad}'");
  // What does not work is found out while the old one still runs.
  SPDLD_TRY(timeline.check(request.at.kind == SwapAt::Kind::kStep ? request.at.step : here, 0));
  const job::StepAt at = trial_step(request.at, here, timeline);
  const auto made = trials_.make(job->key.uid, **variant, swap.phase->run, at,
                                 timeline.sharding(at).rows(at.step, 0), progress);
  if (!made)
    return tl::unexpected<Status>(
        made.error().with_context("job '" + job->key.job +
                                  "' goes on with what it has: a first batch of the new version "
                                  "could not be made"));
  SPDLD_TRY(open_gpus(job, *swap.phase));
  return swap;
}

Result<std::vector<PlannedSwap>> Sessions::plan_swaps(
    const job::Caller& caller, const pipeline::PipelinePtr& pipeline, const SwapRequest& request,
    const pipeline::Catalogue::Progress& progress) {
  std::vector<JobPtr> jobs;
  {
    MutexLock lock(mutex_);
    if (!request.job.empty()) {
      auto job = find_job(caller, {.job = request.job, .pipelines = {pipeline->id()}});
      if (!job && find_job(caller, {.job = request.job, .pipelines = {pipeline->name()}}))
        return error(Code::kPermissionDenied,
                     "job '" + request.job + "' runs the shared pipeline '" + pipeline->name() +
                         "', which admins change (access.admins): ask one, or change the job's own "
                         "variables from its ranks (Loader.apply)");
      if (!job) return tl::unexpected<Status>(std::move(job).error());
      jobs.push_back(*std::move(job));
    } else {
      jobs = jobs_of(caller, pipeline->id());
    }
  }
  std::vector<PlannedSwap> swaps;
  for (const JobPtr& job : jobs) {
    SwapVars vars;
    {
      MutexLock lock(mutex_);
      vars = vars_for(*job, request);
    }
    SPDLD_ASSIGN(PlannedSwap swap, plan_swap(job, pipeline, vars, request, progress));
    swaps.push_back(std::move(swap));
  }
  return swaps;
}

}  // namespace spdld::session

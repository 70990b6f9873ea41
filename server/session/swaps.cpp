// SPDX-License-Identifier: Apache-2.0
#include "session/swaps.h"

#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "session/records.h"

namespace spdld::session {
namespace {

// Where a job runs with `given` instead of its own.
std::vector<Override> overridden(const std::map<std::string, std::string>& own,
                                 const std::set<std::string>& names,
                                 const std::map<std::string, std::string>& given) {
  std::vector<Override> overrides;
  for (const std::string& name : names) {
    const auto said = own.find(name);
    const auto runs = given.find(name);
    if (said == own.end() || runs == given.end() || said->second == runs->second) continue;
    overrides.push_back({.name = name, .own = said->second, .given = runs->second});
  }
  return overrides;
}

// In the history, of a version that was applied to change this job alone.
std::string applied_for(const Job& job) { return "for job '" + job.key.job + "'"; }

}  // namespace

Swaps::Swaps(Sessions& sessions) : sessions_(sessions) {}

Swap Swaps::outcome(const Planned& planned) {
  Swap swap{.pipeline = planned.pipeline};
  for (const PlannedSwap& of : planned.swaps)
    swap.jobs.push_back(
        {.job = of.job->key.job,
         .pipeline = of.job->key.pipeline,
         .version = of.phase->version(),
         .from = of.runs_since.value_or(of.from),
         .tuned = of.tuned,
         .runs = of.runs_since.has_value(),
         .replaces = of.replaces,
         .overrides = overridden(of.vars, of.phase->overrides, of.phase->pipeline->plan->spec.vars),
         .outlook = of.outlook});
  return swap;
}

Result<Swaps::Planned> Swaps::plan(const job::Caller& caller, const pipeline::PipelinePtr& built,
                                   const std::optional<SwapRequest>& jobs,
                                   const pipeline::Catalogue::Progress& progress) {
  Planned planned{.caller = caller.uid, .pipeline = nullptr, .swaps = {}};
  SPDLD_ASSIGN(planned.pipeline, sessions_.deps().catalogue.numbered(caller.uid, built));
  if (!jobs) return planned;
  SPDLD_ASSIGN(planned.swaps, sessions_.plan_swaps(caller, planned.pipeline, *jobs, progress));
  return planned;
}

bool Swaps::is_current(const pipeline::PipelineVersion& pipeline) const {
  const pipeline::PipelinePtr current = sessions_.deps().catalogue.find(pipeline.id());
  return current != nullptr && current->version == pipeline.version;
}

Status Swaps::check_planned(const Planned& planned) const {
  const pipeline::PipelineVersion& pipeline = *planned.pipeline;
  SPDLD_ASSIGN(
      const pipeline::PipelinePtr now,
      sessions_.deps().catalogue.numbered(planned.caller, planned.pipeline, pipeline.version));
  if (now->version == pipeline.version) return {};
  return Status(Code::kAborted, "pipeline '" + pipeline.id() + "' has become version " +
                                    std::to_string(now->version - 1) +
                                    " meanwhile, by another apply or by a loader that brought it: "
                                    "look at it, and apply again if this is still wanted");
}

// Decided once it is on disk; what follows cannot fail.
Result<Swap> Swaps::carry_out(const Planned& planned, std::string note) {
  const pipeline::PipelineVersion& pipeline = *planned.pipeline;
  pipeline::Catalogue& catalogue = sessions_.deps().catalogue;
  MutexLock writing(sessions_.records());
  (void)sessions_.keep_brought();
  // Whether it may be put is found out before it is on disk.
  Status kept = check_planned(planned);
  SPDLD_FAILPOINT("session.swap.commit");
  if (kept.ok()) kept = sessions_.check_prepared(planned.swaps);
  if (kept.ok())
    kept = sessions_.deps().store.put_pipeline(
        stored_pipeline(pipeline), stored_revision(pipeline, planned.caller, std::move(note)),
        sessions_.stored_after(planned.swaps));
  SPDLD_FAILPOINT("session.swap.committed");
  const bool unchanged = is_current(pipeline);
  if (kept.ok()) {
    if (auto put = catalogue.put(planned.caller, planned.pipeline, pipeline.version); !put)
      kept = std::move(put).error();
  }
  if (!kept.ok()) {
    sessions_.abort_swaps(planned.swaps);
    return tl::unexpected<Status>(
        kept.with_context("pipeline '" + pipeline.id() + "' and its jobs stay as they are"));
  }
  sessions_.commit_swaps(planned.swaps);
  Swap done = outcome(planned);
  done.unchanged = unchanged;
  if (!done.unchanged || !planned.swaps.empty())
    log::info({.pipeline = pipeline.id(), .uid = planned.caller},
              "pipeline '{}' version {}: {}, applied by uid {} for new jobs and {}", pipeline.id(),
              pipeline.version, counted(pipeline.source->size(), "item"), planned.caller,
              counted(planned.swaps.size(), "running job"));
  return done;
}

Result<Swap> Swaps::change(const job::Caller& caller, const pipeline::PipelinePtr& built,
                           std::string note, const std::optional<SwapRequest>& jobs,
                           const pipeline::Catalogue::Progress& progress) {
  MutexLock one_at_a_time(sessions_.swapping());
  SPDLD_ASSIGN(Planned planned, plan(caller, built, jobs, progress));
  if (jobs) SPDLD_TRY(sessions_.prepare_swaps(planned.swaps, jobs->at));
  if (jobs && !jobs->job.empty() && note.empty()) note = applied_for(*planned.swaps.front().job);
  return carry_out(planned, std::move(note));
}

Result<Swap> Swaps::roll_back(const job::Caller& caller, const pipeline::PipelinePtr& built,
                              std::string note, const std::optional<SwapRequest>& jobs,
                              const pipeline::Catalogue::Progress& progress) {
  if (!jobs || jobs->job.empty()) return change(caller, built, std::move(note), jobs, progress);
  MutexLock one_at_a_time(sessions_.swapping());
  SPDLD_ASSIGN(Planned planned, plan(caller, built, jobs, progress));
  SPDLD_ASSIGN(const pipeline::PipelinePtr before, before_apply(planned, progress));
  SPDLD_TRY(sessions_.prepare_swaps(planned.swaps, jobs->at));
  if (planned.swaps.front().drops()) return drop(planned, before);
  return carry_out(planned, std::move(note));
}

Result<pipeline::PipelinePtr> Swaps::before_apply(const Planned& planned,
                                                  const pipeline::Catalogue::Progress& progress) {
  const PlannedSwap& swap = planned.swaps.front();
  if (swap.before == nullptr || !is_current(*swap.base->pipeline)) return pipeline::PipelinePtr();
  const SessionsDeps& deps = sessions_.deps();
  SPDLD_ASSIGN(const std::vector<store::StoredRevision> revisions,
               deps.store.history(planned.pipeline->id()));
  if (revisions.size() < 2 || revisions.back().version != swap.base->version() ||
      revisions.back().note != applied_for(*swap.job))
    return pipeline::PipelinePtr();
  const store::StoredRevision& earlier = revisions[revisions.size() - 2];
  return deps.catalogue.rebuild(planned.pipeline->owner, earlier.request, earlier.version,
                                std::nullopt, std::nullopt, progress);
}

Result<Swap> Swaps::drop(const Planned& planned, const pipeline::PipelinePtr& before) {
  const PlannedSwap& swap = planned.swaps.front();
  const std::string id = planned.pipeline->id();
  const SessionsDeps& deps = sessions_.deps();
  MutexLock writing(sessions_.records());
  (void)sessions_.keep_brought();
  const pipeline::PipelinePtr current = deps.catalogue.find(id);
  const bool takes_back = before != nullptr && is_current(*swap.base->pipeline) &&
                          !sessions_.has_other_phase(*swap.base);
  Status kept = current != nullptr ? sessions_.check_prepared(planned.swaps)
                                   : Status(Code::kAborted, "it was deleted meanwhile");
  if (kept.ok()) {
    const std::vector<store::StoredJob> jobs = sessions_.stored_after(planned.swaps);
    kept = takes_back ? deps.store.take_back(stored_pipeline(*before), jobs)
                      : deps.store.put_jobs(jobs);
  }
  if (!kept.ok()) {
    sessions_.abort_swaps(planned.swaps);
    return tl::unexpected<Status>(
        kept.with_context("pipeline '" + id + "' and its jobs stay as they are"));
  }
  if (takes_back) deps.catalogue.take_back(before);
  sessions_.commit_swaps(planned.swaps);
  Swap done = outcome(planned);
  done.pipeline = takes_back ? before : current;
  done.unchanged = !takes_back;
  done.dropped = true;
  log::info(
      {.pipeline = id, .uid = planned.caller},
      "pipeline '{}' is at version {}: the change of job '{}' to version {} is dropped by uid "
      "{}",
      id, done.pipeline->version, swap.job->key.job, swap.base->version(), planned.caller);
  return done;
}

Result<Swap> Swaps::ask(const job::Caller& caller, const pipeline::PipelinePtr& built,
                        const SwapRequest& jobs, const pipeline::Catalogue::Progress& progress) {
  MutexLock one_at_a_time(sessions_.swapping());
  SPDLD_ASSIGN(Planned planned, plan(caller, built, jobs, progress));
  SPDLD_TRY(sessions_.look_ahead(planned.swaps, jobs.at));
  Swap would = outcome(planned);
  would.unchanged = is_current(*planned.pipeline);
  return would;
}

Result<Swap> Swaps::replace(const job::Caller& caller, const pipeline::PipelinePtr& built,
                            std::string note) {
  SPDLD_ASSIGN(const Planned alone, plan(caller, built, std::nullopt, nullptr));
  return carry_out(alone, std::move(note));
}

}  // namespace spdld::session

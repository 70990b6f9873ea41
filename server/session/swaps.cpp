// SPDX-License-Identifier: Apache-2.0
#include "session/swaps.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/job_records.h"
#include "session/swap_place.h"

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

Status Swaps::begin(PlannedSwap& swap, const SwapAt& at) {
  Job& job = *swap.job;
  if (!table_.runs(swap.job))
    return Status(Code::kAborted,
                  "job '" + job.key.job + "' has ended while its swap was prepared");
  if (swap.base != job.state.plan->last_phase()) return changed_meanwhile(swap);
  // A rank asks again.
  if (!swap.tuned)
    SPDLD_TRY(table_.check_settled(
        job, swap.by_consumer ? Code::kUnavailable : Code::kFailedPrecondition));
  swap.change = begin_change(table_, swap.job);
  swap.change->from = hold(job);
  return place_swap(swap, at, *swap.change);
}

std::vector<Swaps::Unopened> Swaps::unopened(const std::vector<PlannedSwap>& swaps) {
  std::vector<Unopened> unopened;
  for (const PlannedSwap& swap : swaps) {
    for (const auto& [member, session] : swap.job->members) {
      if (!has_opened_gpu(*session, *swap.phase)) unopened.push_back({session, swap.phase});
    }
  }
  return unopened;
}

Status Swaps::prepare(std::vector<PlannedSwap>& swaps, const SwapAt& at,
                      stream::DeviceReserve& reserve) {
  Status ready;
  for (PlannedSwap& swap : swaps) {
    // The reserve is to hear of all that it lacks.
    if (!ready.ok() && !reserve.lacks()) break;
    Status made = begin(swap, at);
    if (made.ok()) made = session::prepare(*swap.change, reserve);
    if (ready.ok()) ready = std::move(made);
  }
  return ready;
}

void Swaps::end(std::vector<PlannedSwap>& swaps, const Status& written) {
  for (PlannedSwap& swap : swaps) {
    if (!swap.change) continue;
    const bool renames = written.ok() && swap.change->from == job::kNoTurn;
    const bool changes = written.ok() && swap.change->from != job::kNoTurn && !swap.drops();
    end_change(table_, *swap.change, written);
    swap.change.reset();
    const pipeline::PipelineVersion& pipeline = *swap.phase->pipeline;
    if (renames)
      deps_.executor.tune(*swap.phase->run, pipeline.plan->fetch.concurrency,
                          pipeline.plan->process.concurrency);
    if (changes)
      log::info(about(swap.job->key), "job '{}' runs version {} of pipeline '{}' from {} on",
                swap.job->key.job, swap.phase->version(), swap.job->key.pipeline,
                place_text(swap.from));
  }
}

Status Swaps::carry_out(std::vector<PlannedSwap>& swaps, const SwapAt& at, const Writing& write) {
  stream::DeviceReserve reserve;
  while (true) {
    std::vector<Unopened> late;
    {
      MutexLock writing(table_.records());
      std::vector<store::StoredJob> records;
      {
        MutexLock lock(table_.mutex());
        late = unopened(swaps);
        const std::vector<PlannedSwap> planned = swaps;
        Status ready = late.empty() ? prepare(swaps, at, reserve) : Status();
        if (!ready.ok()) {
          end(swaps, ready);
          if (!reserve.lacks()) return ready;
          swaps = planned;
        }
        for (const PlannedSwap& swap : swaps) {
          if (!swap.change || swap.job->is_private) continue;
          records.push_back(stored_after(*swap.change));
          records.back().kept_unix_ms = unix_ms();
        }
      }
      if (late.empty() && !reserve.lacks()) {
        SPDLD_FAILPOINT("session.swap.commit");
        Status written;
        {
          MutexLock lock(table_.mutex());
          for (const PlannedSwap& swap : swaps) {
            if (written.ok() && swap.change) written = check_prepared(*swap.change);
          }
        }
        if (written.ok()) written = write(records);
        SPDLD_FAILPOINT("session.swap.committed");
        MutexLock lock(table_.mutex());
        end(swaps, written);
        return written;
      }
    }
    reserve.fill();
    for (const Unopened& one : late) SPDLD_TRY(gpus_.open(one.session, *one.phase));
  }
}

Status Swaps::look_ahead(std::vector<PlannedSwap>& swaps, const SwapAt& at) {
  MutexLock writing(table_.records());
  MutexLock lock(table_.mutex());
  for (PlannedSwap& swap : swaps) {
    Status placed = begin(swap, at);
    if (placed.ok()) {
      const Job& job = *swap.job;
      swap.outlook = SwapOutlook{.version_before = job.phase()->version(),
                                 .frontier = swap.there.at(),
                                 .steps_per_epoch = job.schedule().steps_per_epoch(swap.there),
                                 .steps_per_s = pace_of(job),
                                 .known = swap.known};
    }
    if (swap.change) {
      swap.change->from = job::kNoTurn;
      end_change(table_, *swap.change, Status(Code::kCancelled, "only asked for"));
      swap.change.reset();
    }
    SPDLD_TRY(placed);
  }
  return {};
}

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
  SPDLD_ASSIGN(planned.pipeline, deps_.pipelines.numbered(caller.uid, built));
  if (!jobs) return planned;
  SPDLD_ASSIGN(planned.swaps, planner_.plan(caller, planned.pipeline, *jobs, progress));
  return planned;
}

bool Swaps::is_current(const pipeline::PipelineVersion& pipeline) const {
  const pipeline::PipelinePtr current = deps_.pipelines.find(pipeline.id());
  return current != nullptr && current->version == pipeline.version;
}

Status Swaps::check_planned(const Planned& planned) const {
  const pipeline::PipelineVersion& pipeline = *planned.pipeline;
  SPDLD_ASSIGN(const pipeline::PipelinePtr now,
               deps_.pipelines.numbered(planned.caller, planned.pipeline, pipeline.version));
  if (now->version == pipeline.version) return {};
  return Status(Code::kAborted, "pipeline '" + pipeline.id() + "' has become version " +
                                    std::to_string(now->version - 1) +
                                    " meanwhile, by another apply or by a loader that brought it: "
                                    "look at it, and apply again if this is still wanted");
}

Status Swaps::put(const Planned& planned, const std::string& note,
                  const std::vector<store::StoredJob>& jobs, bool& unchanged) {
  const pipeline::PipelineVersion& pipeline = *planned.pipeline;
  (void)keeper_.keep_brought(table_);
  // Whether it may be put is found out before it is on disk.
  SPDLD_TRY(check_planned(planned));
  SPDLD_TRY(deps_.store.put_pipeline(
      stored_pipeline(pipeline), stored_revision(pipeline, shown_uid(planned.caller), note), jobs));
  unchanged = is_current(pipeline);
  const auto put = deps_.pipelines.put(planned.caller, planned.pipeline, pipeline.version);
  return put ? Status() : put.error();
}

Result<Swap> Swaps::carry_out(Planned& planned, const SwapAt& at, const std::string& note,
                              const std::optional<Drop>& drop) {
  const pipeline::PipelineVersion& pipeline = *planned.pipeline;
  const std::string id = pipeline.id();
  pipeline::PipelinePtr current = planned.pipeline;
  bool unchanged = false, dropped = false, takes_back = false;
  const Status kept = carry_out(
      planned.swaps, at,
      [&](const std::vector<store::StoredJob>& jobs) SPDLD_REQUIRES(table_.records()) -> Status {
        // Batches of the change may have been made since this was planned.
        dropped = drop && planned.swaps.front().drops();
        if (!dropped) return put(planned, note, jobs, unchanged);
        (void)keeper_.keep_brought(table_);
        current = deps_.pipelines.find(id);
        if (current == nullptr) return {Code::kAborted, "it was deleted meanwhile"};
        const pipeline::Phase& base = *planned.swaps.front().base;
        takes_back =
            drop->before != nullptr && is_current(*base.pipeline) && !table_.has_other_phase(base);
        unchanged = !takes_back;
        if (!takes_back) return deps_.store.put_jobs(jobs);
        current = drop->before;
        return deps_.store.take_back(stored_pipeline(*current), jobs);
      });
  if (!kept.ok())
    return tl::unexpected<Status>(
        kept.with_context("pipeline '" + id + "' and its jobs stay as they are"));
  if (takes_back) deps_.pipelines.take_back(current);
  Swap done = outcome(planned);
  done.pipeline = current;
  done.unchanged = unchanged;
  done.dropped = dropped;
  const uid_t by = shown_uid(planned.caller);
  const log::About about{.pipeline = id, .uid = by};
  if (dropped)
    log::info(about,
              "pipeline '{}' is at version {}: the change of job '{}' to version {} is dropped by "
              "uid {}",
              id, current->version, planned.swaps.front().job->key.job,
              planned.swaps.front().base->version(), by);
  else if (!unchanged || !planned.swaps.empty())
    log::info(about, "pipeline '{}' version {}: {}, applied by uid {} for new jobs and {}", id,
              pipeline.version, counted(pipeline.source->size(), "item"), by,
              counted(planned.swaps.size(), "running job"));
  return done;
}

Result<Swap> Swaps::plan_and(const CarryingOut& carry_out, const job::Caller& caller,
                             const pipeline::PipelinePtr& built,
                             const std::optional<SwapRequest>& jobs,
                             const pipeline::Catalogue::Progress& progress) {
  return plan_until_fresh<Swap>([&](bool& is_stale) -> Result<Swap> {
    SPDLD_ASSIGN(Planned planned, plan(caller, built, jobs, progress));
    Result<Swap> done = carry_out(planned);
    is_stale = std::any_of(planned.swaps.begin(), planned.swaps.end(),
                           [](const PlannedSwap& swap) { return swap.is_stale; });
    return done;
  });
}

Result<Swap> Swaps::change(const job::Caller& caller, const pipeline::PipelinePtr& built,
                           std::string note, const std::optional<SwapRequest>& jobs,
                           const pipeline::Catalogue::Progress& progress) {
  return plan_and(
      [&](Planned& planned) {
        if (jobs && !jobs->job.empty() && note.empty())
          note = applied_for(*planned.swaps.front().job);
        return carry_out(planned, jobs ? jobs->at : SwapAt{}, note);
      },
      caller, built, jobs, progress);
}

Result<Swap> Swaps::roll_back(const job::Caller& caller, const pipeline::PipelinePtr& built,
                              std::string note, const std::optional<SwapRequest>& jobs,
                              const pipeline::Catalogue::Progress& progress) {
  if (!jobs || jobs->job.empty()) return change(caller, built, std::move(note), jobs, progress);
  return plan_and(
      [&](Planned& planned) -> Result<Swap> {
        std::optional<Drop> drop;
        if (planned.swaps.front().drops()) {
          SPDLD_ASSIGN(const pipeline::PipelinePtr before, before_apply(planned, progress));
          drop = Drop{.before = before};
        }
        return carry_out(planned, jobs->at, note, drop);
      },
      caller, built, jobs, progress);
}

Result<pipeline::PipelinePtr> Swaps::before_apply(const Planned& planned,
                                                  const pipeline::Catalogue::Progress& progress) {
  const PlannedSwap& swap = planned.swaps.front();
  if (swap.before == nullptr || !is_current(*swap.base->pipeline)) return pipeline::PipelinePtr();
  SPDLD_ASSIGN(const std::vector<store::StoredRevision> revisions,
               deps_.store.history(planned.pipeline->id()));
  if (revisions.size() < 2 || revisions.back().version != swap.base->version() ||
      revisions.back().note != applied_for(*swap.job))
    return pipeline::PipelinePtr();
  const store::StoredRevision& earlier = revisions[revisions.size() - 2];
  return deps_.catalogue.rebuild(planned.pipeline->owner, earlier.request,
                                 {.version = earlier.version}, progress);
}

Result<Swap> Swaps::ask(const job::Caller& caller, const pipeline::PipelinePtr& built,
                        const SwapRequest& jobs, const pipeline::Catalogue::Progress& progress) {
  SPDLD_ASSIGN(Planned planned, plan(caller, built, jobs, progress));
  SPDLD_TRY(look_ahead(planned.swaps, jobs.at));
  Swap would = outcome(planned);
  would.unchanged = is_current(*planned.pipeline);
  return would;
}

Result<Swap> Swaps::replace(const job::Caller& caller, const pipeline::PipelinePtr& built,
                            const std::string& note) {
  SPDLD_ASSIGN(Planned alone, plan(caller, built, std::nullopt, nullptr));
  return carry_out(alone, SwapAt{}, note);
}

}  // namespace spdld::session

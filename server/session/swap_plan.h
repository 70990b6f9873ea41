// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pipeline/trial.h"
#include "session/changes.h"
#include "session/gpus.h"
#include "session/job_records.h"
#include "session/runner_starts.h"

namespace spdld::session {

// A swap of one job: planned without a lock, then placed in the job's order, then carried out.
struct PlannedSwap {
  JobPtr job;
  pipeline::PhasePtr phase;                      // what it is to run
  std::map<std::string, std::string> vars = {};  // that its consumers have given by then
  bool known = false;  // it runs that already, or will: nothing is to be done
  bool tuned = false;  // nothing differs but what may be tuned at once
  pipeline::PhasePtr before =
      nullptr;               // the same content, up to the last change: that need only not come
  bool by_consumer = false;  // a rank asks for the swap, rather than spdlctl
  bool allow_schema_change = false;
  pipeline::PhasePtr base = nullptr;  // what it ran, or was to run, last when this was planned
  // Once it is placed:
  job::State there = {};  // at the first turn that no shard has begun
  job::StepAt from = {};
  std::optional<job::StepAt> runs_since = {};     // it runs that already: from there on
  std::vector<job::PlannedChange> replaces = {};  // what was to come from then on
  std::optional<Change> change = {};              // none: nothing changes
  std::optional<SwapOutlook> outlook = {};        // of one that is only asked for
  bool is_stale = false;  // could not be placed: the job has changed since this was planned

  // Nothing is built: the last change does not come, and the job goes on as it runs up to there.
  bool drops() const { return before != nullptr && phase == before; }
};

// Calls `attempt`, which plans a swap and carries it out, again while its job changes in between
// and `is_stale` is set: a few times.
template <typename T, typename Attempt>
Result<T> plan_until_fresh(const Attempt& attempt) {
  constexpr int kMostPlans = 8;
  for (int plans = 1;; ++plans) {
    bool is_stale = false;
    Result<T> done = attempt(is_stale);
    if (!is_stale || plans == kMostPlans) return done;
  }
}

// The variables that a job is to run with.
struct SwapVars {
  std::map<std::string, std::string> own;  // that its consumers have given
  std::set<std::string> overrides;         // of which those count that the pipeline has
};

// Builds, without a lock, the phase of each job after a swap, and tries it. Owned by Sessions.
// Thread-safe.
class SwapPlanner {
 public:
  SwapPlanner(const SessionsDeps& deps, JobTable& table, JobRecords& records,
              pipeline::Trials& trials, GpuOpener& gpus, RunnerStarts& runner_starts)
      : deps_(deps),
        table_(table),
        records_(records),
        trials_(trials),
        gpus_(gpus),
        runner_starts_(runner_starts) {}

  // Plans the swap of each job and makes a trial batch of its new phase. Slow.
  Result<std::vector<PlannedSwap>> plan(const job::Caller& caller,
                                        const pipeline::PipelinePtr& pipeline,
                                        const SwapRequest& request,
                                        const pipeline::Catalogue::Progress& progress)
      SPDLD_EXCLUDES(table_.mutex());
  // The same of one job.
  Result<PlannedSwap> plan(const JobPtr& job, const pipeline::PipelinePtr& pipeline,
                           const SwapVars& vars, const SwapRequest& request,
                           const pipeline::Catalogue::Progress& progress,
                           pipeline::VariantFiles files = pipeline::VariantFiles::kAsListed)
      SPDLD_EXCLUDES(table_.mutex());
  // The jobs that would get other content if `request` changed them to `pipeline`. Parses pipelines
  // in variables that are new.
  std::vector<StayingJob> staying(const job::Caller& caller, const pipeline::PipelinePtr& pipeline,
                                  const SwapRequest& request,
                                  const pipeline::Catalogue::Progress& progress)
      SPDLD_EXCLUDES(table_.mutex());

 private:
  // With which variables a job would be changed.
  static SwapVars vars_for(const Job& job, const SwapRequest& request);
  // The pipeline in the job's variables and batch size, read with the rights of `reader`.
  Result<pipeline::PipelinePtr> variant_for(
      const pipeline::PipelinePtr& pipeline, const SwapVars& vars,
      std::optional<std::uint64_t> batch_size, const Credentials& reader,
      const pipeline::Catalogue::Progress& progress,
      pipeline::VariantFiles files = pipeline::VariantFiles::kAsListed);

  const SessionsDeps& deps_;
  JobTable& table_;
  JobRecords& records_;
  pipeline::Trials& trials_;
  GpuOpener& gpus_;
  RunnerStarts& runner_starts_;
};

}  // namespace spdld::session

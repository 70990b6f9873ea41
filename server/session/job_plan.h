// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "job/membership.h"
#include "job/schedule.h"
#include "pipeline/phase.h"

namespace spdld::session {

// A job's schedule, which gives the version of each turn, and the phase of each version. Immutable;
// a change of the job makes another plan.
struct JobPlan {
  job::Schedule schedule;
  std::map<std::uint32_t, pipeline::PhasePtr> phases;

  const pipeline::PhasePtr& phase(std::uint32_t version) const { return phases.at(version); }
  // Of the version that was given last, whether or not it runs already.
  std::uint32_t last_version() const;
  const pipeline::PhasePtr& last_phase() const { return phase(last_version()); }
  // Of a rank of these own seeks that is sent `turn` next.
  const pipeline::PhasePtr& phase_at(job::Turn turn, const job::OwnSeeks& own) const;
  // The progress of a rank of these own seeks that begins at `turn`.
  job::Progress progress_at(job::Turn turn, const job::OwnSeeks& own) const;
  // The step from which a rank of these own seeks runs a swap of the log.
  job::StepAt runs_from(const job::Edit& swap, const job::OwnSeeks& own) const;
};
using JobPlanPtr = std::shared_ptr<const JobPlan>;

// A rank's own seeks as far as they tell its place at a turn; none where all of them come later.
job::OwnSeeks known_at(job::Turn turn, const job::OwnSeeks& own);
// A run of its own that begins at `from`, which holds a place and the number of shards.
JobPlanPtr new_run(pipeline::PhasePtr phase, const job::State& from);
// The same schedule with other phases for some of its versions, of the same facts.
JobPlanPtr with_phases(const JobPlan& plan,
                       const std::map<pipeline::PhasePtr, pipeline::PhasePtr>& phases);
// The same with another prefetch for all versions, and whether all have it; 0: none of the job's
// own.
bool has_prefetch(const JobPlan& plan, std::uint32_t prefetch);
JobPlanPtr with_prefetch(const JobPlan& plan, std::uint32_t prefetch);
// With one more edit at a turn that no member has been sent, or with a swap that is planned for a
// place. The arguments are those of Schedule::add() and plan().
Result<JobPlanPtr> with_edit(const JobPlan& plan, const job::Edit& edit, job::Turn reached,
                             job::Turn handed);
// The same of a run that nobody has been in, with its edits in its base.
JobPlanPtr begun_behind_edits(const JobPlan& plan);
// The planned swap as an edit where it is due for a member of these own seeks that is sent `turn`
// next; the plan itself where nothing is planned.
struct Assumed {
  JobPlanPtr plan;
  job::Turn due = job::kNoTurn;  // at which the planned swap would take effect
};
Assumed assumed(const JobPlanPtr& plan, job::Turn turn, const job::OwnSeeks& own);

}  // namespace spdld::session

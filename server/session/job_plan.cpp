// SPDX-License-Identifier: Apache-2.0
#include "session/job_plan.h"

#include <algorithm>
#include <random>

#include "stream/span.h"

namespace spdld::session {
namespace {

// No two runs have the same one, also of daemons that know nothing of each other.
std::uint64_t new_run_id() {
  std::random_device random;
  std::uint64_t id = 0;
  // 63 bits: every language's integers hold it.
  while (id == 0) id = ((std::uint64_t{random()} << 32) | random()) >> 1;
  return id;
}

}  // namespace

std::uint32_t JobPlan::last_version() const {
  const job::ScheduleRecord& record = schedule.record();
  if (record.planned) return record.planned->version;
  for (auto edit = record.edits.rbegin(); edit != record.edits.rend(); ++edit) {
    if (const auto* const swap = std::get_if<job::Edit::Swap>(&edit->change)) return swap->version;
  }
  return record.base.next_version;
}

const pipeline::PhasePtr& JobPlan::phase_at(job::Turn turn, const job::OwnSeeks& own) const {
  return phase(schedule.locate(std::max(turn, schedule.record().oldest), own).version);
}

job::Progress JobPlan::progress_at(job::Turn turn, const job::OwnSeeks& own) const {
  const job::State back = schedule.behind(turn, own);
  return {.sent = turn,
          .next = schedule.locate(turn, own).at(),
          .released = turn,
          .at = back.at(),
          .position = back.position,
          .order = phase(back.version)->order_text()};
}

job::StepAt JobPlan::runs_from(const job::Edit& swap, const job::OwnSeeks& own) const {
  const job::Turn turn = std::max(swap.turn, schedule.record().oldest);
  const job::State there = schedule.locate(turn, known_at(turn, own));
  const std::uint32_t version = std::get<job::Edit::Swap>(swap.change).version;
  if (there.version == version || there.next_version != version) return there.at();
  return {.epoch = there.epoch + 1, .step = 0};
}

job::OwnSeeks known_at(job::Turn turn, const job::OwnSeeks& own) {
  return own.empty() || own.front().turn > turn ? job::OwnSeeks() : own;
}

JobPlanPtr new_run(pipeline::PhasePtr phase, const job::State& from) {
  job::Schedule schedule(new_run_id(), stream::facts_of(*phase), from);
  const std::uint32_t version = schedule.record().base.version;
  return std::make_shared<JobPlan>(
      JobPlan{.schedule = std::move(schedule), .phases = {{version, std::move(phase)}}});
}

JobPlanPtr with_phases(const JobPlan& plan,
                       const std::map<pipeline::PhasePtr, pipeline::PhasePtr>& phases) {
  auto next = std::make_shared<JobPlan>(plan);
  for (auto& [version, phase] : next->phases) {
    if (const auto other = phases.find(phase); other != phases.end()) phase = other->second;
  }
  return next;
}

bool has_prefetch(const JobPlan& plan, std::uint32_t prefetch) {
  return std::all_of(plan.phases.begin(), plan.phases.end(),
                     [&](const auto& phase) { return phase.second->prefetch == prefetch; });
}

JobPlanPtr with_prefetch(const JobPlan& plan, std::uint32_t prefetch) {
  std::map<pipeline::PhasePtr, pipeline::PhasePtr> phases;
  for (const auto& [version, phase] : plan.phases) {
    if (phase->prefetch == prefetch) continue;
    auto other = std::make_shared<pipeline::Phase>(*phase);
    other->prefetch = prefetch;
    phases.emplace(phase, std::move(other));
  }
  return with_phases(plan, phases);
}

Result<JobPlanPtr> with_edit(const JobPlan& plan, const job::Edit& edit, job::Turn reached,
                             job::Turn handed) {
  auto next = std::make_shared<JobPlan>(plan);
  const auto added = next->schedule.add(edit, reached, handed);
  if (!added) return tl::unexpected<Status>(added.error());
  return JobPlanPtr(std::move(next));
}

JobPlanPtr begun_behind_edits(const JobPlan& plan) {
  auto next = std::make_shared<JobPlan>(plan);
  next->schedule.begin_behind_edits();
  return next;
}

Assumed assumed(const JobPlanPtr& plan, job::Turn turn, const job::OwnSeeks& own) {
  const auto& planned = plan->schedule.record().planned;
  Assumed assumed{.plan = plan};
  if (!planned) return assumed;
  assumed.due = plan->schedule.planned_turn(turn, own);
  // Own seeks must not come to lie before the oldest edit.
  const bool full = plan->schedule.edits().size() == job::Schedule::kMostEdits;
  if (assumed.due == job::kNoTurn || full) return assumed;
  auto next = with_edit(*plan, {.turn = assumed.due, .change = job::Edit::Swap{planned->version}},
                        assumed.due, assumed.due);
  if (next) assumed.plan = *std::move(next);
  return assumed;
}

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#include "session/loop.h"

#include <algorithm>
#include <string>
#include <utility>

namespace spdld::session {
namespace {

// The first turn from `turn` on at which shards enter at a place not known yet; kNoTurn: none do.
job::Turn next_entry(const job::Schedule& schedule, job::Turn turn) {
  for (const job::Edit& edit : schedule.edits()) {
    const auto* const resize = std::get_if<job::Edit::Resize>(&edit.change);
    if (edit.turn >= turn && resize != nullptr && !resize->entry) return edit.turn;
  }
  return job::kNoTurn;
}

}  // namespace

Loop::Loop(JobPlanPtr counts, job::OwnSeeks says, job::Turn next)
    : plan(std::move(counts)),
      own(std::move(says)),
      turn(next),
      reads(assumed(plan, turn, own)),
      handed(next) {}

Loop::Place Loop::place() const {
  // A loop may be at a step that its epoch does not have: its end is told then.
  if (!own.empty() && own.back().turn == turn && own.back().skip == 0)
    return {.at = own.back().to, .position = own.back().position};
  const job::State state = plan->schedule.behind(turn, own);
  return {.at = state.at(), .position = state.position};
}

job::OwnSeeks Loop::own_in(const job::Schedule& schedule, job::Turn released) const {
  if (own.empty() || own.front().turn >= schedule.record().oldest) return own;
  return plan->schedule.anchored(own, released);
}

Result<Loop::Place> Loop::seek(const delivery::SeekRequest& request, job::Turn released) {
  const job::Schedule& schedule = plan->schedule;
  const job::Turn oldest = schedule.record().oldest;
  // The first turn that the own seeks, and the job's edits, say anything of.
  const job::Turn known = own.empty() ? oldest : std::max(oldest, own.front().turn);
  if (request.turn > turn || request.turn < (request.skip > 0 ? known : oldest))
    return error(Code::kInvalidArgument,
                 "the loop has been handed " + std::to_string(request.turn) +
                     " batches, it says, and was sent " + std::to_string(turn));
  // Earlier seeks of the loop say no more than where it has come to by them.
  job::OwnSeeks says = schedule.anchored(own, std::min(released, request.turn));
  job::OwnSeek to;
  Place told{.at = {.epoch = request.epoch, .step = 0}, .position = 0};
  if (request.skip > 0) {
    job::State from = schedule.behind(request.turn, says);
    if (from.epoch != request.epoch && schedule.locate(request.turn, says).epoch == request.epoch) {
      // A skip of the job at that very turn has ended the epoch before.
      SPDLD_ASSIGN(to, schedule.own_seek(request.turn, {}, told.at, 0));
      from = schedule.behind(request.turn, {to});
    }
    to = {.turn = request.turn,
          .to = from.at(),
          .position = from.position,
          .version = from.version,
          .skip = 0};
    if (from.epoch == request.epoch) {
      const source::Sharding sharding = schedule.sharding(from);
      to.skip = std::min<std::uint64_t>(request.skip, sharding.end_step() - from.step);
      told.at.step = from.step + to.skip;
      told.position = sharding.position_of(told.at.step);
    } else if (request.turn <= known) {
      told = place();
    } else {
      // It stands at its epoch's end, and nothing is left to skip.
      const job::State last = schedule.locate(request.turn - 1, own);
      const source::Sharding sharding = schedule.sharding(last);
      told.at = {last.epoch, sharding.end_step()};
      told.position = sharding.position_of(sharding.end_step());
    }
  } else {
    SPDLD_ASSIGN(to, schedule.own_seek(request.turn, {}, told.at, 0));
  }
  job::say(says, to);
  own = std::move(says);
  serial = request.serial;
  turn = handed = request.turn;
  told_entry = 0;  // a batch that was asked about may have been taken back
  go_by(plan);
  return told;
}

delivery::ResetNotice Loop::reset(const Place& at, std::uint32_t seek, std::uint32_t shard) const {
  const job::Schedule& schedule = plan->schedule;
  return {.to = {.epoch = at.at.epoch, .position = at.position, .step = at.at.step},
          .steps_per_epoch = schedule.steps_per_epoch(schedule.locate(turn, own)),
          .seek = seek,
          .shard = shard,
          .num_shards = schedule.shards(job::kNoTurn)};
}

bool Loop::take_telling() {
  // Beyond those that are asked for already: their places may not be known here yet.
  const job::Turn entry = next_entry(plan->schedule, std::max(handed, told_entry) + 1);
  if (entry == job::kNoTurn || turn + 1 < entry) return false;
  told_entry = entry;
  return true;
}

bool Loop::is_at_entry() const { return next_entry(plan->schedule, 0) <= handed; }

Loop::Pending Loop::with(const JobPlanPtr& other, job::Turn from, job::Turn released) const {
  Pending next{.plan = other, .own = own_in(other->schedule, released)};
  next.reads = assumed(other, turn, next.own);
  next.from = std::max(turn, std::min({from, next.reads.due, reads.due}));
  return next;
}

bool Loop::reads_as(const JobPlan& other) const {
  const job::ScheduleRecord& one = reads.plan->schedule.record();
  const job::ScheduleRecord& two = other.schedule.record();
  return one.run == two.run && one.edits == two.edits && one.base == two.base &&
         one.base_turn == two.base_turn && reads.plan->phases == other.phases;
}

void Loop::prepare(Pending next) {
  reads = next.reads;
  pending = std::move(next);
}

void Loop::commit() {
  plan = std::move(pending->plan);
  own = std::move(pending->own);
  pending.reset();
}

void Loop::go_by(JobPlanPtr counts) {
  plan = std::move(counts);
  pending.reset();
  reads = assumed(plan, turn, own);
}

}  // namespace spdld::session

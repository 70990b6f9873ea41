// SPDX-License-Identifier: Apache-2.0
#include "session/swap_place.h"

#include <algorithm>
#include <utility>

#include "base/text/counted.h"
#include "session/job_texts.h"
#include "stream/span.h"

namespace spdld::session {
namespace {

std::string tensor_text(const TensorSpec& tensor, std::uint64_t batch) {
  std::string shape = std::to_string(batch);
  for (const std::int64_t extent : tensor.shape)
    shape += ", " + (extent < 0 ? "*" : std::to_string(extent));
  return tensor.name + " " + std::string(dtype_name(tensor.dtype)) + " (" + shape + ")";
}

// The point as the asker writes it: in a training loop, or on spdlctl's command line.
std::string at_text(const PlannedSwap& swap, const std::string& where) {
  return swap.by_consumer ? "at=\"" + where + "\"" : "--at " + where;
}

// A training loop that was written for one is not surprised by the other.
Status check_schema(const pipeline::Phase& now, const PlannedSwap& swap) {
  const pipeline::Phase& next = *swap.phase;
  const std::string& job = swap.job->key.job;
  const auto& has = now.pipeline->plan->tensors;
  const auto& gets = next.pipeline->plan->tensors;
  const std::string way_out =
      std::string("; if the training loop can take it, allow it (") +
      (swap.by_consumer ? "allow_schema_change=True" : "--allow-schema-change") + ")";
  for (std::size_t i = 0; i < std::max(has.size(), gets.size()); ++i) {
    if (i < has.size() && i < gets.size() && has[i] == gets[i] && now.batch == next.batch) continue;
    const std::string before = i < has.size() ? tensor_text(has[i], now.batch) : "nothing";
    const std::string after = i < gets.size() ? tensor_text(gets[i], next.batch) : "nothing";
    return Status(Code::kFailedPrecondition, "job '" + job + "' is given " + before +
                                                 ", and would be given " + after + way_out);
  }
  return {};
}

// A rank that stands still may read on at any time.
constexpr double kLeastStepsPerS = 1;

// A rank of the shard was here.
bool has_been_read(const Job& job, std::uint32_t shard) {
  const auto& entries = job.membership.entries();
  return std::any_of(entries.begin(), entries.end(), [shard](const auto& known) {
    return known.first.shard == shard && known.second.has_left();
  });
}

// Where a swap begins: at the turn from which it was asked for, or at a place ahead.
struct Begin {
  job::StepAt from;
  bool at_once = false;
  std::optional<job::StepAt> place = std::nullopt;  // none, and not at once: any epoch's start
};

Result<Begin> asked_begin(const Job& job, const SwapAt& at, const job::State& there,
                          bool may_be_earlier) {
  if (at.kind == SwapAt::Kind::kNow) return Begin{.from = there.at(), .at_once = true};
  if (at.kind == SwapAt::Kind::kNextEpoch) {
    if (there.position == 0) return Begin{.from = there.at(), .at_once = true};
    return Begin{.from = {.epoch = there.epoch + 1, .step = 0}};
  }
  SPDLD_TRY(job::check_place(at.step));
  const std::uint64_t end = at.step.epoch == there.epoch ? job.schedule().sharding(there).end_step()
                                                         : job.schedule().steps_per_epoch(there);
  if (at.step.step > end)
    return error(Code::kOutOfRange,
                 "job '" + job.key.job + "': epoch " + std::to_string(at.step.epoch) + " has " +
                     counted(end, "step") + "; there is no step " + std::to_string(at.step.step));
  const job::StepAt place = at.step.step == end ? job::StepAt{at.step.epoch + 1, 0} : at.step;
  // A rank that has not come yet may begin before it: one that asks then tries again.
  if (place < there.at())
    return error(may_be_earlier ? Code::kUnavailable : Code::kOutOfRange,
                 "job '" + job.key.job + "' has passed " + place_text(place) +
                     ": the first step that can still change is " + place_text(there.at()));
  return Begin{.from = place, .at_once = place == there.at(), .place = place};
}

// Fails if a shard is not read from this daemon: the steps begun on other nodes are not known here.
Status check_feeds_all(const PlannedSwap& swap) {
  const Job& job = *swap.job;
  const std::string step = at_text(swap, "step:EPOCH/N");
  if (job.members.empty()) return {};
  for (std::uint32_t shard = 0; shard < job.num_shards(); ++shard) {
    const auto member = job.members.lower_bound({.shard = shard, .replica = 0});
    if ((member != job.members.end() && member->first.shard == shard) || has_been_read(job, shard))
      continue;
    return Status(
        swap.by_consumer ? Code::kUnavailable : Code::kFailedPrecondition,  // a rank asks again
        "job '" + job.key.job + "': shard " + std::to_string(shard) +
            " is not read from this daemon; if its rank has only not come yet, try again once "
            "it is attached; if another node feeds it, name a step that all of them can change at "
            "(" +
            step + ")" +
            (swap.by_consumer ? ", on each of them" : ", and their daemons (--address A,B)"));
  }
  return {};
}

Status check_swap(const PlannedSwap& swap, const job::State& there, const pipeline::Phase& before) {
  const Job& job = *swap.job;
  const std::string name = "job '" + job.key.job + "'";
  const bool at_start = swap.from == there.at() ? there.position == 0 : swap.from.step == 0;
  if (!at_start && !before.same_order(*swap.phase))
    return Status(Code::kFailedPrecondition,
                  name +
                      ": another dataset, other clips or windows, another shuffle, repeat or "
                      "seed give another order, and that can change at an epoch's start only: "
                      "apply it with " +
                      at_text(swap, "next-epoch") + ", or " + at_text(swap, "step:EPOCH/0"));
  if (job.max_epochs > 0 && swap.from.epoch >= job.max_epochs)
    return Status(Code::kOutOfRange, name + " ends with epoch " +
                                         std::to_string(job.max_epochs - 1) + ", before " +
                                         place_text(swap.from) + ": name an earlier place");
  return swap.allow_schema_change ? Status() : check_schema(before, swap);
}

}  // namespace

LastChange last_change(const Job& job, job::Turn frontier) {
  const JobPlan& plan = *job.state.plan;
  const job::ScheduleRecord& record = plan.schedule.record();
  const Job::Standing furthest = job.furthest();
  LastChange last{.version = record.base.next_version,
                  .since = record.base.at(),
                  .before = plan.phase(record.base.version),
                  .before_version = record.base.version,
                  .before_since = record.base.at()};
  const auto change_to = [&](std::uint32_t version, job::StepAt since) {
    last.before = plan.phase(last.version);
    last.before_version = std::exchange(last.version, version);
    last.before_since = std::exchange(last.since, since);
  };
  for (const job::Edit& edit : record.edits) {
    const auto* const swap = std::get_if<job::Edit::Swap>(&edit.change);
    if (swap == nullptr) continue;
    change_to(swap->version, plan.runs_from(edit, furthest.own));
    last.lies_ahead = edit.turn >= frontier;
  }
  if (!record.planned) return last;
  const job::Turn due =
      plan.schedule.planned_turn(std::max(frontier, job.first_turn()), furthest.own);
  change_to(record.planned->version, due == job::kNoTurn
                                         ? record.planned->place.value_or(job::kNever)
                                         : plan.schedule.behind(due, furthest.own).at());
  last.lies_ahead = last.planned = true;
  return last;
}

Status place_swap(PlannedSwap& swap, const SwapAt& at, Change& change) {
  const Job& job = *swap.job;
  const job::Turn turn = change.from;
  const job::State there = swap.there = job.schedule().locate(turn, job.furthest().own);
  const LastChange last = last_change(job, turn);
  change.from = job::kNoTurn;
  change.next.vars = swap.vars;
  const auto rename = [&] {
    if (swap.phase != swap.base)
      change.next.plan = with_phases(*change.next.plan, {{swap.base, swap.phase}});
    return Status();
  };
  if (swap.tuned) {
    swap.from = there.at();
    return rename();
  }
  // Batches of the last change are made by now: the job changes back.
  if (swap.drops() && !last.lies_ahead) swap.before = nullptr;
  if (swap.drops()) {
    if (at.kind != SwapAt::Kind::kStep) SPDLD_TRY(check_feeds_all(swap));
    swap.from = last.since;
    swap.runs_since = last.before_since;
    swap.replaces = {
        {.version = job.state.plan->phase(last.version)->version(), .from = last.since}};
    change.from = turn;
    if (!last.planned)
      return add_edit(change, {.turn = turn, .change = job::Edit::Swap{last.before_version}});
    auto next = std::make_shared<JobPlan>(*change.next.plan);
    next->schedule.drop_planned();
    change.next.plan = std::move(next);
    return {};
  }
  const bool may_be_earlier = swap.by_consumer && !job.all_seen() && !job.gathering.over;
  const auto begin = asked_begin(job, at, there, may_be_earlier);
  if (swap.known && !last.lies_ahead) {
    if (at.kind == SwapAt::Kind::kStep && begin && begin->from > last.since)
      return Status(Code::kFailedPrecondition,
                    "job '" + job.key.job + "' has run this from " + place_text(last.since) +
                        " on, and not from " + place_text(begin->from) +
                        ": name that place, or roll it back there first");
    swap.from = last.since;
    swap.runs_since = last.since;
    return rename();
  }
  if (!begin) return begin.error();
  swap.from = begin->from;
  if (swap.known && swap.from == last.since) return rename();
  swap.known = false;
  if (last.lies_ahead && (last.planned || begin->at_once))
    swap.replaces = {
        {.version = job.state.plan->phase(last.version)->version(), .from = last.since}};
  if (at.kind != SwapAt::Kind::kStep) SPDLD_TRY(check_feeds_all(swap));
  const pipeline::PhasePtr before =
      last.lies_ahead ? last.before : change.next.plan->phase(last.version);
  SPDLD_TRY(check_swap(swap, there, *before));
  change.from = turn;
  auto next = std::make_shared<JobPlan>(*change.next.plan);
  std::uint32_t version = last.version;
  if (swap.phase != swap.base) {
    version = next->schedule.add_version(stream::facts_of(*swap.phase));
    next->phases[version] = swap.phase;
  }
  if (!begin->at_once) {
    const auto planned =
        next->schedule.plan({.from = turn, .place = begin->place, .version = version});
    if (!planned) return planned.error().with_context("job '" + job.key.job + "'");
    change.next.plan = std::move(next);
    return {};
  }
  change.next.plan = std::move(next);
  return add_edit(change, {.turn = turn, .change = job::Edit::Swap{version}});
}

std::optional<double> pace_of(const Job& job) {
  double steps_per_s = 0;
  const auto batch = static_cast<double>(job.phase()->batch);
  for (const SessionPtr& session : job.attached()) {
    const auto lately = session->rates.lately();
    if (!lately) return std::nullopt;
    steps_per_s = std::max({steps_per_s, kLeastStepsPerS, lately->rows_per_s / batch});
  }
  return steps_per_s;
}

Status changed_meanwhile(PlannedSwap& swap) {
  swap.is_stale = true;
  return Status(Code::kAborted, "job '" + swap.job->key.job +
                                    "' was changed by somebody else while this was planned: try "
                                    "again");
}

}  // namespace spdld::session

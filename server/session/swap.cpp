// SPDX-License-Identifier: Apache-2.0
// Hot swap: what a running job runs from one of its steps on. Prepared on all shards at once, then
// written to disk and committed, or aborted.
#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/job_texts.h"
#include "session/records.h"
#include "session/sessions.h"

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

// What of `timeline` does not come if it changes at `first`.
std::vector<job::PlannedChange> changes_from(const stream::Timeline& timeline, job::StepAt first) {
  const auto& cuts = timeline.cuts();
  std::vector<job::PlannedChange> changes;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i].from >= first && cuts[i].phase != cuts[i - 1].phase)
      changes.push_back({.version = cuts[i].phase->version(), .from = cuts[i].from});
  }
  return changes;
}

// A rank that stands still may read on at any time.
constexpr double kLeastStepsPerS = 1;

// In steps per second, of the fastest rank; none: one of them has only just come. 0: there is none.
std::optional<double> pace_of(const Job& job) {
  double steps_per_s = 0;
  for (const auto& [member, session] : job.members) {
    if (session->consumer == nullptr) continue;
    const auto rows = session->rows.per_second(0);
    if (!rows) return std::nullopt;
    steps_per_s =
        std::max({steps_per_s, kLeastStepsPerS, *rows / static_cast<double>(job.phase().batch)});
  }
  return steps_per_s;
}

Status changed_meanwhile(const Job& job) {
  return Status(Code::kAborted, "job '" + job.key.job +
                                    "' was changed by somebody else while this was planned: try "
                                    "again");
}

SwapOutlook outlook_of(const PlannedSwap& swap, job::StepAt frontier) {
  const Job& job = *swap.job;
  return {.version_before =
              (swap.tuned ? swap.base : job.state.timeline.phase_before(swap.from))->version(),
          .frontier = frontier,
          .steps_per_epoch = job.state.timeline.steps_per_epoch(frontier),
          .steps_per_s = pace_of(job),
          .known = swap.known};
}

}  // namespace

// Whether nothing about it changes when that is committed.
bool Sessions::says_nothing_new(const PlannedSwap& swap) {
  const Job& job = *swap.job;
  const pipeline::PhasePtr& last = job.state.timeline.last_phase();
  return swap.known && (last != swap.base || (last == swap.phase && job.state.vars == swap.vars));
}

// What other nodes have begun is not known here.
Status Sessions::check_feeds_all(const PlannedSwap& swap) {
  const Job& job = *swap.job;
  const std::string step = at_text(swap, "step:EPOCH/N");
  if (job.members.empty()) return {};
  // All ranks ask for the same change and must be told the same step. A rank that comes back may
  // make that an earlier one.
  const auto returning = job.membership.returning(job.state.timeline.num_shards());
  if (swap.by_consumer && returning && !job.gathered)
    return Status(Code::kUnavailable, "job '" + job.key.job + "': " + member_text(job, *returning) +
                                          " has not come back yet; try again once it is attached");
  for (std::uint32_t shard = 0; shard < job.state.timeline.num_shards(); ++shard) {
    const auto member = job.members.lower_bound({.shard = shard, .replica = 0});
    if ((member != job.members.end() && member->first.shard == shard) ||
        job.membership.has_read(shard))
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

Result<job::StepAt> Sessions::asked_step(const Job& job, const stream::Timeline& timeline,
                                         const SwapAt& at, job::StepAt frontier) {
  if (at.kind == SwapAt::Kind::kNow) return frontier;
  if (at.kind == SwapAt::Kind::kNextEpoch)
    return frontier.step == 0 ? frontier : job::StepAt{frontier.epoch + 1, 0};
  SPDLD_TRY(timeline.check(at.step, 0));
  const std::uint64_t end = timeline.end_step(at.step.epoch);
  if (at.step.step > end)
    return error(Code::kOutOfRange,
                 "job '" + job.key.job + "': epoch " + std::to_string(at.step.epoch) + " has " +
                     counted(end, "step") + "; there is no step " + std::to_string(at.step.step));
  return timeline.settled(at.step);
}

Status Sessions::check_swap(const PlannedSwap& swap, const stream::Timeline& timeline,
                            job::StepAt frontier) {
  const Job& job = *swap.job;
  const job::StepAt from = swap.from;
  const std::string name = "job '" + job.key.job + "'";
  const pipeline::Phase& before = *timeline.phase(from);
  if (from < frontier) {
    // A rank that is yet to come may begin before it: one that asks then tries again.
    const bool may_be = swap.by_consumer && !job.all_seen() && !job.gathered;
    return Status(may_be ? Code::kUnavailable : Code::kOutOfRange,
                  name + " has passed " + place_text(from) +
                      ": the first step that can still change is " + place_text(frontier));
  }
  if (from.step > 0 && !before.same_order(*swap.phase))
    return Status(
        Code::kFailedPrecondition,
        name +
            ": another dataset, other clips or windows, another shuffle or seed give "
            "another order, and that can change at an epoch's start only: apply it with " +
            at_text(swap, "next-epoch") + ", or " + at_text(swap, "step:EPOCH/0"));
  if (job.max_epochs > 0 && from.epoch >= job.max_epochs)
    return Status(Code::kOutOfRange, name + " ends with epoch " +
                                         std::to_string(job.max_epochs - 1) + ", before " +
                                         place_text(from) + ": name an earlier place");
  return swap.allow_schema_change ? Status() : check_schema(before, swap);
}

stream::Timeline Sessions::without_last_change(const Job& job) {
  stream::Timeline timeline = job.state.timeline;
  const job::StepAt since = timeline.last_change();
  timeline.swap(since, timeline.phase_before(since));
  return timeline;
}

// Decides where it is to be. Afterwards it may be known, and then nothing is to be done.
Status Sessions::place_swap(PlannedSwap& swap, const SwapAt& at, job::StepAt frontier) {
  const Job& job = *swap.job;
  const job::StepAt since = job.state.timeline.last_change();
  const bool begun = since < frontier || since == job.state.timeline.cuts().front().from;
  const bool runs = swap.known && begun;
  const stream::Timeline without_last = without_last_change(job);
  if (swap.before != nullptr && !begun) {
    const auto asked = asked_step(job, without_last, at, frontier);
    if (asked && *asked >= frontier && *asked <= since) {
      swap.phase = swap.before;
      swap.from = since;
      swap.runs_since = without_last.last_change();
      swap.replaces = changes_from(job.state.timeline, since);
      return at.kind == SwapAt::Kind::kStep ? Status() : check_feeds_all(swap);
    }
  }
  // A planned change of the same content may come at another step instead.
  const stream::Timeline& timeline = swap.known && !begun ? without_last : job.state.timeline;
  SPDLD_ASSIGN(swap.from, asked_step(job, timeline, at, frontier));
  if (runs && swap.from > since && at.kind == SwapAt::Kind::kStep)
    return Status(Code::kFailedPrecondition, "job '" + job.key.job + "' has run this from " +
                                                 place_text(since) + " on, and not from " +
                                                 place_text(swap.from) +
                                                 ": name that place, or roll it back there first");
  if (swap.known && (swap.from == since || (swap.from > since && runs))) {
    swap.from = since;
    if (runs) swap.runs_since = since;
    return {};
  }
  if (swap.known && swap.from > since) swap.planned = since;
  swap.known = false;
  swap.replaces = changes_from(job.state.timeline, swap.planned.value_or(swap.from));
  if (at.kind != SwapAt::Kind::kStep) SPDLD_TRY(check_feeds_all(swap));
  SPDLD_TRY(check_swap(swap, timeline, frontier));
  // Planned as one that is dropped, before the job was dealt anew.
  return swap.drops() ? changed_meanwhile(job) : Status();
}

Result<job::StepAt> Sessions::hold_and_place(PlannedSwap& swap, const SwapAt& at) {
  Job& job = *swap.job;
  // A rank asks again.
  const Code not_yet = swap.by_consumer ? Code::kUnavailable : Code::kFailedPrecondition;
  if (job.changes() || yet_to_jump(job) != nullptr)
    return tl::unexpected<Status>(check_settled(job, not_yet));
  if (swap.base != job.state.timeline.last_phase())
    return tl::unexpected<Status>(changed_meanwhile(job));
  if (swap.tuned) return swap.from = job.here();
  if (!swap.known) SPDLD_TRY(check_settled(job, not_yet));
  const job::StepAt frontier = hold(job);
  Status placed = place_swap(swap, at, frontier);
  if (placed.ok() && !swap.known)
    placed = check_settled(job, not_yet);  // also of one that is moved
  if (placed.ok()) return frontier;
  go_on(job);
  return tl::unexpected<Status>(std::move(placed));
}

Status Sessions::look_ahead(PlannedSwap& swap, const SwapAt& at) {
  SPDLD_ASSIGN(const job::StepAt frontier, hold_and_place(swap, at));
  swap.outlook = outlook_of(swap, frontier);
  go_on(*swap.job);
  return {};
}

Status Sessions::prepare_swap(PlannedSwap& swap, const SwapAt& at, stream::DeviceReserve& reserve) {
  Job& job = *swap.job;
  if (const auto frontier = hold_and_place(swap, at); !frontier) return frontier.error();
  if (swap.tuned) {
    job.tuning = swap.phase;
    return {};
  }
  Status ready;
  if (!swap.known) {
    job.pending = Job::Pending{.from = swap.from, .phase = swap.phase, .planned = swap.planned};
    for (const auto& [member, session] : job.members) {
      // The reserve is to hear of all that it lacks.
      if (session->consumer == nullptr || (!ready.ok() && !reserve.lacks())) continue;
      Status made = session->consumer->prepare_swap(swap.from, swap.phase, swap.planned, &reserve);
      if (ready.ok()) ready = std::move(made);
    }
    if (!ready.ok()) abort_swap(swap);
  }
  go_on(job);
  return ready;
}

void Sessions::await_written(const std::vector<PlannedSwap>& swaps) {
  const auto writing = [](const PlannedSwap& swap) { return swap.job->being_written; };
  while (std::any_of(swaps.begin(), swaps.end(), writing)) written_.wait(mutex_);
}

std::vector<Sessions::Unopened> Sessions::unopened(const std::vector<PlannedSwap>& swaps) {
  std::vector<Unopened> unopened;
  for (const PlannedSwap& swap : swaps) {
    for (const auto& [member, session] : swap.job->members) {
      if (!has_opened_gpu(*session, *swap.phase)) unopened.push_back({session, swap.phase});
    }
  }
  return unopened;
}

Status Sessions::prepare_swaps(std::vector<PlannedSwap>& swaps, const SwapAt& at) {
  stream::DeviceReserve reserve;
  while (true) {
    std::vector<Unopened> late;
    {
      MutexLock lock(mutex_);
      // Both without a gap: who attaches once a change is written may need a GPU, too.
      await_written(swaps);
      late = unopened(swaps);
      if (late.empty()) {
        Status ready = prepare_opened(swaps, at, reserve);
        if (!reserve.lacks()) return ready;
      }
    }
    reserve.fill();
    for (const Unopened& one : late) SPDLD_TRY(open_gpu_of_job(one.session, *one.phase));
  }
}

Status Sessions::prepare_opened(std::vector<PlannedSwap>& swaps, const SwapAt& at,
                                stream::DeviceReserve& reserve) {
  Status ready;
  auto swap = swaps.begin();
  for (; swap != swaps.end() && (ready.ok() || reserve.lacks()); ++swap) {
    Status made = check_runs(*swap);
    if (made.ok()) made = prepare_swap(*swap, at, reserve);
    if (ready.ok()) ready = std::move(made);
  }
  if (ready.ok()) return ready;
  for (auto done = swaps.begin(); done != swap; ++done) abort_swap(*done);
  return ready;
}

Status Sessions::look_ahead(std::vector<PlannedSwap>& swaps, const SwapAt& at) {
  MutexLock lock(mutex_);
  for (PlannedSwap& swap : swaps) {
    await_written(swap.job->key);
    SPDLD_TRY(check_runs(swap));
    SPDLD_TRY(look_ahead(swap, at));
  }
  return {};
}

Status Sessions::check_runs(const PlannedSwap& swap) const {
  if (runs(swap.job)) return {};
  return Status(Code::kAborted,
                "job '" + swap.job->key.job + "' has ended while its swap was prepared");
}

bool Sessions::runs(const JobPtr& job) const {
  const auto running = jobs_.find(job->key);
  return running != jobs_.end() && running->second == job;
}

Status Sessions::check_prepared(const std::vector<PlannedSwap>& swaps) const {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) {
    for (const auto& [member, session] : swap.job->members) {
      if (session->consumer == nullptr) continue;
      SPDLD_TRY(session->consumer->prepared().with_context(
          "job '" + swap.job->key.job +
          "' goes on with what it has: the new version failed behind " + place_text(swap.from)));
    }
  }
  return {};
}

std::vector<store::StoredJob> Sessions::stored_after(const std::vector<PlannedSwap>& swaps) const {
  MutexLock lock(mutex_);
  std::vector<store::StoredJob> records;
  for (const PlannedSwap& swap : swaps) {
    if (says_nothing_new(swap) || swap.job->is_private || !runs(swap.job)) continue;
    const Job& job = *swap.job;
    if (swap.tuned && job.tuning != swap.phase) continue;
    JobState next = job.state;
    next.vars = swap.vars;
    if (swap.tuned || swap.known) {
      next.timeline.rename(next.timeline.last_phase(), swap.phase);
    } else {
      next.timeline.swap(swap.from, swap.phase, swap.planned);
    }
    records.push_back(job.stored(next, job.membership));
    records.back().kept_unix_ms = unix_ms();
  }
  return records;
}

void Sessions::commit_swaps(const std::vector<PlannedSwap>& swaps) {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) {
    Job& job = *swap.job;
    if (says_nothing_new(swap) || !runs(swap.job)) continue;
    if (swap.tuned && job.tuning != swap.phase) continue;
    if (swap.tuned) job.tuning.reset();
    if (swap.tuned || swap.known) {
      job.state.vars = swap.vars;
      const engine::Plan& plan = *swap.phase->pipeline->plan;
      deps_.executor.tune(*swap.phase->run, plan.fetch.concurrency, plan.process.concurrency);
      const pipeline::PhasePtr before = job.state.timeline.last_phase();
      job.state.timeline.rename(before, swap.phase);
      for (const auto& [member, session] : job.members) {
        if (session->consumer != nullptr) session->consumer->rename(before, swap.phase);
      }
      if (job.members.empty() && swap.tuned) end_job(swap.job);
      continue;
    }
    if (!job.pending || job.pending->phase != swap.phase) continue;
    job.pending.reset();
    job.state.vars = swap.vars;
    job.state.timeline.swap(swap.from, swap.phase, swap.planned);
    job.record_is_old = true;  // what is on disk of its members is of when it was written
    job.forget_old_cuts();
    for (const auto& [member, session] : job.members) {
      if (session->consumer == nullptr) continue;
      session->consumer->commit_swap();
      SPDLD_FAILPOINT("session.swap.told");
    }
    log::info(about(job.key), "job '{}' runs version {} of pipeline '{}' from {} on", job.key.job,
              swap.phase->version(), job.key.pipeline, place_text(swap.from));
    if (job.members.empty()) end_job(swap.job);
  }
}

void Sessions::abort_swap(const PlannedSwap& swap) {
  Job& job = *swap.job;
  if (swap.tuned && job.tuning == swap.phase) {
    job.tuning.reset();
    if (job.members.empty()) end_job(swap.job);
    return;
  }
  if (!job.pending || job.pending->phase != swap.phase) return;
  job.pending.reset();
  for (const auto& [member, session] : job.members) {
    if (session->consumer == nullptr) continue;
    if (Status back = session->consumer->abort_swap(); !back.ok()) session->connection->fail(back);
  }
  if (job.members.empty()) end_job(swap.job);
}

void Sessions::abort_swaps(const std::vector<PlannedSwap>& swaps) {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) abort_swap(swap);
}

}  // namespace spdld::session

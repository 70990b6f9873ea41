// SPDX-License-Identifier: Apache-2.0
// Sends jobs elsewhere in their order, and deals it out anew: seek, resize and skip.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/job_texts.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

// Of how many shards each step of the job can be, whatever comes after a resize.
std::uint64_t most_shards(const stream::Timeline& timeline) {
  std::uint64_t most = kMaxShards;
  for (const stream::Timeline::Cut& cut : timeline.cuts()) {
    if (cut.phase->tail == Tail::kDrop) most = std::min(most, cut.phase->items / cut.phase->batch);
  }
  return most;
}

}  // namespace

Status Sessions::check_settled(const Job& job, Code not_yet) const {
  if (job.tuning != nullptr)
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job +
                      "' is about to be tuned: an apply is under way; try again once it is "
                      "answered");
  if (job.pending)
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' is about to change its pipeline at " +
                      place_text(job.pending->from) +
                      ": an apply is under way; try again once it is answered");
  if (awaits(job))
    return Status(
        not_yet, "job '" + job.key.job + "': " + member_text(job, *job.membership.expected()) +
                     " was read when the daemon stopped and has not come back yet; try again "
                     "once it is attached, or in " +
                     std::to_string(come_back_s().count()) + " s, when it is no longer waited for");
  if (const SessionPtr behind = yet_to_jump(job)) {
    const job::StepAt from = behind->consumer->jumps_at().value_or(job::StepAt{});
    return Status(not_yet,
                  "job '" + job.key.job + "': " + member_text(job, behind->member) +
                      " reads on to " + place_text(from) +
                      ", where the last seek takes it elsewhere; try again once it is there" +
                      away_text(job, behind->member));
  }
  return {};
}

SessionPtr Sessions::yet_to_jump(const Job& job) {
  for (const auto& [member, session] : job.members) {
    if (session->consumer != nullptr && session->consumer->jumps_at()) return session;
  }
  return nullptr;
}

job::StepAt Sessions::hold(Job& job) {
  job::StepAt begun;
  Consumer* furthest = nullptr;
  for (const auto& [member, session] : job.members) {
    if (session->consumer == nullptr || session->consumer->ended()) continue;
    const job::StepAt of_this = session->consumer->hold();
    if (furthest == nullptr || of_this > begun) furthest = session->consumer.get();
    begun = std::max(begun, of_this);
  }
  // A cursor from another world or batch size cuts the epoch as the job itself does not. Where the
  // job cannot follow, it changes with the next epoch.
  if (furthest != nullptr) {
    stream::Timeline timeline = furthest->timeline();
    if (timeline.gapless()) job.state.timeline = std::move(timeline);
  }
  // Who is here no more was given steps, too.
  job.note_progress();
  job.membership.raise(job.state.timeline.settled(begun));
  job::StepAt frontier = std::max(begun, job.membership.furthest().value_or(job::StepAt{}));
  // Who is yet to come begins there.
  if (!job.all_seen()) frontier = std::max(frontier, job.state.start);
  return job.state.timeline.settled(frontier);
}

void Sessions::go_on(const Job& job) {
  for (const auto& [member, session] : job.members) {
    if (session->consumer != nullptr) session->consumer->go_on();
  }
}

Result<Sessions::Change> Sessions::plan_seek(const job::Caller& caller, const JobName& name,
                                             job::StepAt to) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  SPDLD_TRY(check_settled(*job));
  SPDLD_TRY(job->state.timeline.check(to, 0));
  if (job->max_epochs > 0 && to.epoch >= job->max_epochs)
    return tl::unexpected<Status>(beyond_its_end(*job));
  const std::uint64_t end_step = job->state.timeline.end_step(to.epoch);
  if (to.step > end_step)
    return error(Code::kOutOfRange, "epoch " + std::to_string(to.epoch) + " of job '" +
                                        job->key.job + "' has " + counted(end_step, "step") +
                                        "; there is no step " + std::to_string(to.step));
  // All shards take the same steps before: up to the first one that none has begun.
  job->settle_moves();
  if (job->state.moves.size() == Job::kMostMoves) job->settle_moves(false);
  if (job->state.moves.size() == Job::kMostMoves)
    return error(Code::kFailedPrecondition,
                 "job '" + job->key.job + "' was sought " + std::to_string(Job::kMostMoves) +
                     " times already since all its ranks have read a batch: start those that are "
                     "away again, or wait");
  const job::StepAt from = hold(*job);
  Change change = begin_change(job);
  JobState& next = change.next;
  next.moves.push_back({.number = ++next.move_count,
                        .after = next.last_move,
                        .from = from,
                        .to = to,
                        .before = next.timeline});
  next.last_move = next.move_count;
  next.start = to;
  next.timeline.redeal(to, next.timeline.position_of(to));
  change.goes_to = Job::Acknowledged{.at = to, .position = next.timeline.position_of(to)};
  return change;
}

Result<job::JobView> Sessions::seek_job(const job::Caller& caller, const JobName& name,
                                        job::StepAt to) {
  MutexLock writing(records_);
  SPDLD_ASSIGN(Change change, plan_seek(caller, name, to));
  const Status written = write(change);
  MutexLock lock(mutex_);
  Job& job = *change.job;
  if (written.ok()) {
    const Move move = change.next.moves.back();
    job.rewind_ledger(*change.goes_to);
    for (const auto& [member, session] : job.members) {
      if (session->consumer == nullptr) continue;
      session->consumer->jump(
          {.from = move.from, .to = to, .timeline = change.next.timeline, .moves = move.number});
    }
    log::info(about(job.key), "job '{}' goes on at {} instead of {}", job.key.job, place_text(to),
              place_text(move.from));
  }
  go_on(job);
  end_change(change, written);
  if (!written.ok()) return tl::unexpected<Status>(written);
  return job.view();
}

Status Sessions::check_resize(const Job& job, std::uint32_t num_shards) const {
  SPDLD_TRY(check_settled(job));
  // Who has yet to go along with a move reads on in the world that was before it.
  if (!job.state.moves.empty() && !job.members.empty())
    return Status(Code::kUnavailable,
                  "job '" + job.key.job +
                      "': not every rank has given back a batch from behind the last seek; try "
                      "again once it has, and start again who is away");
  for (const stream::Timeline::Cut& cut : job.state.timeline.cuts()) {
    if (stream::Timeline(cut.phase, num_shards).steps_per_epoch({}) > 0) continue;
    return Status(Code::kFailedPrecondition,
                  counted(cut.phase->items, "item") + " make no step of " +
                      counted(num_shards, "shard") + " with batches of " +
                      std::to_string(cut.phase->batch) + ": job '" + job.key.job +
                      "' can have at most " + counted(most_shards(job.state.timeline), "shard") +
                      ", or more with 'batch: {last: pad}'");
  }
  return {};
}

Result<Sessions::Deal> Sessions::plan_deal(const job::Caller& caller, const JobName& name,
                                           std::optional<std::uint32_t> shards,
                                           std::uint64_t skip) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  job->settle_moves(!shards);
  SPDLD_TRY(shards ? check_resize(*job, *shards) : check_settled(*job));
  // From the first step that no shard has begun: held still until all know.
  const job::StepAt from = hold(*job);
  Deal deal{.change = begin_change(job), .from = from};
  JobState& next = deal.change.next;
  if (shards) next.moves.clear();
  const std::uint32_t num_shards = shards.value_or(next.timeline.num_shards());
  const std::uint64_t end = next.timeline.end_step(from.epoch);
  const std::uint64_t left_out = std::min(skip, end - std::min(end, from.step));
  deal.position = next.timeline.position_of({from.epoch, from.step + left_out});
  // What was left out at this very step before stays so.
  deal.left_out = left_out + next.timeline.left_out_at(from);
  deal.grows = num_shards > next.timeline.num_shards();
  next.timeline.resize(from, deal.position, num_shards, deal.left_out);
  deal.change.begins = from;
  return deal;
}

Result<job::JobView> Sessions::deal_anew(Deal deal) {
  const Status written = write(deal.change);
  MutexLock lock(mutex_);
  Job& job = *deal.change.job;
  const std::uint32_t num_shards = deal.change.next.timeline.num_shards();
  if (written.ok() && deal.grows) {
    job.began = deps_.clock.now();  // the new ones are yet to come
    job.gathered = false;
  }
  for (const auto& [member, session] : job.members) {
    if (!written.ok() || session->consumer == nullptr) continue;
    if (Status dealt =
            session->consumer->resize(deal.from, deal.position, num_shards, deal.left_out);
        !dealt.ok())
      session->connection->fail(dealt);
  }
  go_on(job);
  end_change(deal.change, written);
  if (!written.ok()) return tl::unexpected<Status>(written);
  job.forget_old_cuts();
  log::info(about(job.key), "job '{}' has {} from {} on, which begins at position {}", job.key.job,
            counted(num_shards, "shard"), place_text(deal.from), deal.position);
  return job.view();
}

Result<job::JobView> Sessions::resize_job(const job::Caller& caller, const JobName& name,
                                          std::uint32_t num_shards) {
  MutexLock writing(records_);
  {
    MutexLock lock(mutex_);
    SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
    SPDLD_TRY(check_world(num_shards, job->replicas));
    if (num_shards == job->state.timeline.num_shards()) return job->view();
  }
  SPDLD_ASSIGN(Deal deal, plan_deal(caller, name, num_shards, 0));
  return deal_anew(std::move(deal));
}

Result<job::JobView> Sessions::skip_steps(const job::Caller& caller, const JobName& name,
                                          std::uint64_t steps) {
  MutexLock writing(records_);
  SPDLD_ASSIGN(Deal deal, plan_deal(caller, name, std::nullopt, steps));
  return deal_anew(std::move(deal));
}

}  // namespace spdld::session

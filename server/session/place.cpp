// SPDX-License-Identifier: Apache-2.0
// Where a job and each of its consumers begin: afresh, at a cursor, or at the ledger's place.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

job::StepAt cursor_step(const delivery::StreamPosition& cursor) {
  return {cursor.epoch, cursor.step};
}

// The first move that who has gone along with so many is yet to go along with. That it comes from
// beyond the move's step says nothing, unless it is guessed how many those are.
const Move* next_move(const Job& job, std::optional<std::uint32_t> done,
                      const delivery::AttachRequest& request) {
  if (!done) return nullptr;
  const Move* const next = job.move_after(*done);
  if (next == nullptr) return nullptr;
  if (request.reconnect) return next;
  const bool from_there = request.moves || cursor_step(request.cursor) <= next->from;
  return request.start == wire::StartMode::kCursor && from_there ? next : nullptr;
}

}  // namespace

bool Sessions::waits_for_others(const Job& job, const delivery::AttachRequest& request) const {
  return job.members.empty() && !awaits(job) && request.start == wire::StartMode::kFresh &&
         !request.reconnect && request.shard &&
         job.state.timeline.begin_of(*request.shard, job.state.start, true) > job.state.start;
}

bool Sessions::continues_run(const Job& job, std::optional<job::Member> member, job::StepAt at,
                             std::uint64_t position) {
  const stream::Timeline& timeline = job.state.timeline;
  if (!timeline.has(at, position)) return false;
  at = timeline.settled(at);
  const auto read = member ? job.membership.released(member->shard) : std::nullopt;
  if (at < (read ? read : job.membership.released()).value_or(job::kNever)) return false;
  if (member && member->shard >= timeline.num_shards()) return true;
  // A later resize may take shards away. If all shards stopped at the cursor, those that stay take
  // over the rows of the others from there on. Else the rows of a step would be dealt twice, or
  // never: the run continues, and readers of the shards that go may come back.
  const std::uint32_t shards = timeline.sharding(at).segment().num_shards;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    if (!job.membership.stopped_at(shard, at)) return true;
  }
  return shards <= timeline.num_shards();
}

Status Sessions::place_first(Job& job, job::Member member, const delivery::AttachRequest& request,
                             const std::optional<store::StoredPosition>& ledger) {
  job.settle_moves();
  if (!job.members.empty() || next_move(job, request.moves, request) != nullptr) return {};
  // Who is yet to come back goes on where it was; so does the job, unless this is a new run of it.
  const bool new_run = request.start == wire::StartMode::kLedger && !request.reconnect;
  if (awaits(job) && !new_run) return {};
  bool continues = false;
  if (request.start == wire::StartMode::kLedger) {
    Job::Acknowledged last;
    if (job.membership.anyone_left() || job.ledger.kept_unix_ms > 0) {
      last = job.acknowledged();
    } else if (ledger) {
      last = {.at = ledger->at, .position = ledger->position};
    } else {
      return Status(Code::kNotFound,
                    job.is_private
                        ? "a consumer that names no job has no ledger to start from: name the job, "
                          "or start afresh"
                        : "start=\"ledger\": nothing is known of where job '" + job.key.job +
                              "' was; start afresh, or from a saved state_dict()");
    }
    // The order was another one, perhaps, when an earlier daemon kept it; at an epoch's start that
    // is of no matter.
    const bool of_now = !ledger || job.membership.anyone_left() || last.at.step == 0;
    SPDLD_TRY(
        check_place(job, job.state.timeline, of_now ? std::string() : ledger->order, last.at,
                    last.position)
            .with_context("start=\"ledger\": job '" + job.key.job + "' cannot go on where it was"));
    continues = continues_run(job, std::nullopt, last.at, last.position);
    if (!continues) job.state.timeline.redeal(last.at, last.position);
    job.state.start = last.at;
    job.starts_by_ledger = true;
  } else if (request.start == wire::StartMode::kFresh && !request.reconnect) {
    // All begin at the same step of the same deal, however the job was resized before.
    job.state.timeline.resize(job.state.start, job.state.timeline.position_of(job.state.start),
                              job.state.timeline.num_shards());
    job.starts_by_ledger = false;
  } else {
    if (request.start != wire::StartMode::kCursor) return {};
    SPDLD_TRY(check_cursor(job, job.state.timeline, request));
    const job::StepAt at{request.cursor.epoch, request.cursor.step};
    stream::Timeline timeline = job.state.timeline;
    if (request.reconnect || continues_run(job, member, at, request.cursor.position)) {
      timeline.resume(at, request.cursor.position);
    } else {
      // It comes with all the ranks that there are now.
      timeline.redeal(at, request.cursor.position);
      job.membership.start_again(timeline.num_shards(), at, request.cursor.position);
      log::info(about(job.key), "job '{}' starts again at {}, which is dealt out anew to {}",
                job.key.job, place_text(at), counted(timeline.num_shards(), "shard"));
      job.starts_by_ledger = false;
      job.began.reset();
      job.gathered = false;
    }
    if (timeline.gapless()) job.state.timeline = std::move(timeline);
    job.record_is_old = true;
    return {};
  }
  if (continues) {
    job.membership.begin_again(job.state.timeline.num_shards());
  } else {
    job.membership.clear();
  }
  job.state.moves.clear();
  job.began.reset();
  job.gathered = false;
  job.rewind_ledger(
      {.at = job.state.start, .position = job.state.timeline.position_of(job.state.start)});
  job.record_is_old = true;
  return {};
}

Result<Sessions::Place> Sessions::place_of(Job& job, job::Member member,
                                           const delivery::AttachRequest& request) {
  const auto* const known = job.membership.find(member);
  const auto* const was = known != nullptr && known->has_left() ? &known->progress : nullptr;
  const job::StepAt at = cursor_step(request.cursor);
  if (request.moves) job.state.move_count = std::max(job.state.move_count, *request.moves);
  std::optional<std::uint32_t> done = request.moves;
  // A cursor that was written by hand, or a state_dict() from before moves were counted, has none.
  if (!done && was != nullptr) done = was->moves;
  if (const Move* const next = next_move(job, done, request)) {
    // Those who are away may start from as far back.
    job.membership.limit_moves(*done);
    if (request.start != wire::StartMode::kCursor || at >= next->from)
      return Place{.at = next->to, .moves = next->number, .passage = next->number};
    SPDLD_TRY(check_cursor(job, next->before, request));
    return Place{
        .at = at, .position = request.cursor.position, .moves = *done, .passage = next->after};
  }
  // It alone comes back, while others go on.
  if (request.start == wire::StartMode::kLedger && was != nullptr)
    return Place{
        .at = was->released, .moves = job.state.move_count, .passage = job.state.last_move};
  if (request.start != wire::StartMode::kCursor) {
    // The ledger moves on while some of a new run are yet to come.
    const bool recorded = request.start == wire::StartMode::kLedger && !job.starts_by_ledger &&
                          job.ledger.kept_unix_ms > 0;
    return Place{.at = recorded ? job.ledger.at : job.state.start,
                 .follows = job.absent == stream::AbsentReplica::kGoOn && job.replicas > 1,
                 .moves = job.state.move_count,
                 .passage = job.state.last_move};
  }
  SPDLD_TRY(check_cursor(job, job.state.timeline, request));
  const Place place{.at = at,
                    .position = request.cursor.position,
                    .moves = job.state.move_count,
                    .passage = job.state.last_move};
  // The consumer knows best; where the record says something else, that is told.
  const job::StepAt kept = was != nullptr ? was->released : job.ledger.at;
  if (!request.reconnect && job.ledger.kept_unix_ms > 0 && at != kept) {
    job.ledger.conflict = "shard " + std::to_string(member.shard) + " goes on at " +
                          place_text(at) + " by its own cursor; the ledger had " + place_text(kept);
    log::info(about(job.key), "job '{}' on pipeline '{}': {}", job.key.job, job.key.pipeline,
              job.ledger.conflict);
  }
  return place;
}

Status Sessions::check_cursor(const Job& job, const stream::Timeline& timeline,
                              const delivery::AttachRequest& request) {
  return check_place(job, timeline, request.order_digest,
                     {request.cursor.epoch, request.cursor.step}, request.cursor.position);
}

Status Sessions::check_place(const Job& job, const stream::Timeline& timeline,
                             const std::string& order, job::StepAt at, std::uint64_t position) {
  const pipeline::Phase& phase = *timeline.phase(at);
  if (order.empty() || order == phase.order_text()) return timeline.check(at, position);
  const source::Order now = phase.pipeline->order();
  source::Cursor cursor{.order = order, .position = position};
  if (const auto dash = order.rfind('-'); dash != std::string::npos) {
    cursor.order = order.substr(0, dash);
    cursor.items = std::strtoull(order.c_str() + dash + 1, nullptr, 10);
  }
  Status changed = source::check(cursor, now);
  if (changed.ok())
    changed = Status(Code::kInvalidArgument,
                     "the cursor's order '" + order + "' is none that this daemon gave out");
  return changed.with_context("pipeline '" + job.key.pipeline + "'");
}

}  // namespace spdld::session

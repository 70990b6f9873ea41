// SPDX-License-Identifier: Apache-2.0
#include "session/place.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/job_records.h"

namespace spdld::session {
namespace {

job::Cursor said_cursor(const delivery::AttachRequest& request) {
  return {.order = request.order_digest,
          .at = {request.cursor.epoch, request.cursor.step},
          .position = request.cursor.position,
          .run = request.in_run.run,
          .branch = request.in_run.branch,
          .turn = request.in_run.turn};
}

// The order that the cursor names is checked, unless it is empty.
Result<job::OwnSeek> own_seek(const Job& job, const job::Cursor& cursor) {
  const auto knows = [&](const auto& phase) { return phase.second->order_text() == cursor.order; };
  const auto& phases = job.state.plan->phases;
  if (cursor.order.empty() || std::any_of(phases.begin(), phases.end(), knows))
    return job.schedule().own_seek(cursor);
  const pipeline::Phase& last = *job.state.plan->last_phase();
  source::Cursor said{.order = cursor.order, .position = cursor.position};
  if (const auto dash = cursor.order.rfind('-'); dash != std::string::npos) {
    said.order = cursor.order.substr(0, dash);
    said.items = std::strtoull(cursor.order.c_str() + dash + 1, nullptr, 10);
  }
  Status changed = source::check(said, last.pipeline->order());
  if (changed.ok())
    changed = Status(Code::kInvalidArgument,
                     "the cursor's order '" + cursor.order + "' is none that this daemon gave out");
  return tl::unexpected<Status>(changed.with_context("pipeline '" + job.key.pipeline + "'"));
}

}  // namespace

std::optional<job::Cursor> cursor_of(const Job& job, const delivery::AttachRequest& request) {
  if (request.start != wire::StartMode::kCursor) return std::nullopt;
  const job::Cursor cursor = said_cursor(request);
  if (!job.schedule().counts(cursor, job.membership.reached())) return std::nullopt;
  return cursor;
}

bool fits(const Job& job, const job::Cursor& cursor, std::uint32_t replica,
          const delivery::AttachRequest& request) {
  if (!request.num_shards || *request.num_shards == job.schedule().shards(cursor.turn) ||
      *request.num_shards == job.schedule().behind(cursor.turn, {}).shards)
    return true;
  // A rank that comes back to where it was may know how many shards there are by now.
  const auto* const known =
      request.shard ? job.membership.find({*request.shard, replica}) : nullptr;
  return known != nullptr && *request.num_shards == job.num_shards() &&
         cursor.turn >= known->progress.released;
}

std::optional<job::Schedule::Entry> entry_of(const Job& job, job::Member member,
                                             const delivery::AttachRequest& request) {
  const auto cursor = cursor_of(job, request);
  // Another rank's state may be of before the shard was there.
  if (cursor && member.shard < job.schedule().behind(cursor->turn, {}).shards) return std::nullopt;
  if (!cursor && request.start == wire::StartMode::kCursor) return std::nullopt;
  const auto* const known = job.membership.find(member);
  if (request.start == wire::StartMode::kLedger && known != nullptr) return std::nullopt;
  return job.schedule().entry(member.shard);
}

Status place_first(Job& job, std::uint32_t replica, const delivery::AttachRequest& request,
                   const std::optional<store::StoredPosition>& ledger, bool awaits) {
  if (!job.members.empty()) return {};
  // A rank that is expected goes on where it was; so does the job, unless this is a new run of it.
  const bool by_ledger = request.start == wire::StartMode::kLedger && !request.reconnect;
  const std::uint32_t num_shards = request.num_shards.value_or(job.num_shards());
  const auto cursor = cursor_of(job, request);
  const bool is_of_world =
      num_shards == job.num_shards() || (cursor && fits(job, *cursor, replica, request));
  if (awaits && !by_ledger && is_of_world) return {};
  const bool was_read = job.membership.reached() > 0;
  if (request.start == wire::StartMode::kFresh && !request.reconnect) {
    if (was_read || num_shards != job.num_shards()) job.begin_run(num_shards);
    return {};
  }
  if (!by_ledger) {
    if (cursor && fits(job, *cursor, replica, request)) return {};
    if (!cursor && !was_read && is_of_world) return {};
    if (cursor && request.reconnect) return {};
    job::Cursor alone = said_cursor(request);
    alone.turn = job.first_turn();
    if (const auto begins = own_seek(job, alone); !begins) return begins.error();
    job.begin_run(num_shards);
    log::info(about(job.key), "job '{}' begins a new run at {}, dealt out to {}", job.key.job,
              place_text(alone.at), counted(num_shards, "shard"));
    return {};
  }
  job::Cursor from;
  if (job.membership.anyone_left() || job.ledger.is_known()) {
    from = stored_position(job, job.acknowledged()).cursor;
  } else if (ledger) {
    from = ledger->cursor;
  } else {
    return Status(Code::kNotFound,
                  job.is_private
                      ? "a consumer that names no job has no ledger to start from: name the job, "
                        "or start afresh"
                      : "start=\"ledger\": nothing is known of where job '" + job.key.job +
                            "' was; start afresh, or from a saved state_dict()");
  }
  // The order does not matter at an epoch's start.
  if (from.at.step == 0 && from.position == 0) from.order.clear();
  const std::string refused =
      "start=\"ledger\": job '" + job.key.job + "' cannot go on where it was";
  auto begins = own_seek(job, from);
  if (!begins) return begins.error().with_context(refused);
  if (job.schedule().counts(from, job.membership.reached()) && fits(job, from, replica, request)) {
    job.membership.start_again();
  } else {
    job.begin_run(num_shards);
    from.turn = job.first_turn();
    begins = own_seek(job, from);
    if (!begins) return begins.error().with_context(refused);
  }
  job.gathering = {.ledger_start = *begins};
  job.ledger.rewind(job.state.plan->progress_at(begins->turn, {*begins}));
  job.record.is_old = true;
  return {};
}

Result<Place> place_of(Job& job, job::Member member, const delivery::AttachRequest& request) {
  const auto* const known = job.membership.find(member);
  const bool has_left = known != nullptr && known->has_left();
  if (const auto entry = entry_of(job, member, request)) {
    if (!entry->place)
      return error(Code::kFailedPrecondition,
                   "job '" + job.key.job + "': it is not known any more where shard " +
                       std::to_string(member.shard) +
                       " comes into the job, as the daemon died just then; take it away and bring "
                       "it back ('spdlctl job resize'), or start all ranks from a saved state");
    return Place{.turn = entry->turn, .own = {*entry->place}};
  }
  if (request.start == wire::StartMode::kLedger) {
    // A rank that comes back alone, while others go on; or one of those that begin by the ledger.
    std::optional<job::OwnSeek> begins = job.gathering.ledger_start;
    const job::Progress* was = known != nullptr ? &known->progress : nullptr;
    if (was == nullptr && !begins && job.ledger.is_known()) was = &job.ledger.place;
    if (was != nullptr) {
      SPDLD_ASSIGN(begins, own_seek(job, {.order = was->order,
                                          .at = was->at,
                                          .position = was->position,
                                          .turn = std::max(was->released, job.first_turn())}));
    }
    if (begins) return Place{.turn = begins->turn, .own = {*begins}};
  }
  if (request.start != wire::StartMode::kCursor)
    return Place{.turn = job.first_turn(),
                 .follows = job.absent == stream::AbsentReplica::kGoOn && job.replicas > 1};
  job::Cursor cursor = said_cursor(request);
  // Of another run it is a place alone.
  if (!job.schedule().counts(cursor, job.membership.reached())) cursor.turn = job.first_turn();
  SPDLD_ASSIGN(const job::OwnSeek begins, own_seek(job, cursor));
  // The consumer knows best; where the record says something else, that is told.
  const job::StepAt kept = has_left ? known->progress.at : job.ledger.place.at;
  if (!request.reconnect && job.ledger.is_known() && cursor.at != kept) {
    job.ledger.conflict = "shard " + std::to_string(member.shard) + " goes on at " +
                          place_text(cursor.at) + " by its own cursor; the ledger had " +
                          place_text(kept);
    log::info(about(job.key), "job '{}' on pipeline '{}': {}", job.key.job, job.key.pipeline,
              job.ledger.conflict);
  }
  return Place{.turn = begins.turn, .own = {begins}};
}

}  // namespace spdld::session

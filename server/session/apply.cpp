// SPDX-License-Identifier: Apache-2.0
// What consumers ask to change: the part of Sessions behind Loader.apply().
#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "session/sessions.h"

namespace spdld::session {
namespace {

// Of one consumer: beyond it something asks again and again without waiting for an answer.
constexpr std::ptrdiff_t kMaxApplies = 4;

}  // namespace

Result<PlannedSwap> Sessions::apply_vars(const SessionPtr& session,
                                         const delivery::ApplyWish& wish) {
  JobPtr job;
  pipeline::PipelinePtr base;
  SwapVars vars{.own = wish.vars, .overrides = {}};
  {
    MutexLock lock(mutex_);
    job = session->job;
    if (job == nullptr || session->consumer == nullptr || session->closed)
      return error(Code::kFailedPrecondition, "the consumer is not attached");
  }
  MutexLock one_at_a_time(swapping_);
  {
    MutexLock lock(mutex_);
    if (yet_to_jump(*job) != nullptr)
      return tl::unexpected<Status>(check_settled(*job, Code::kUnavailable));
    base = job->state.timeline.last_phase()->pipeline;
    vars.own.insert(job->state.vars.begin(), job->state.vars.end());
    vars.overrides = job->state.timeline.last_phase()->overrides;
    for (const auto& [name, value] : wish.vars) vars.overrides.erase(name);
  }
  SwapRequest request{.job = job->key.job,
                      .at = {.kind = SwapAt::Kind::kNow, .step = {wish.epoch, wish.step}},
                      .allow_schema_change = wish.allow_schema_change};
  if (wish.at == wire::ApplyAt::kNextEpoch) request.at.kind = SwapAt::Kind::kNextEpoch;
  if (wish.at == wire::ApplyAt::kStep) request.at.kind = SwapAt::Kind::kStep;
  SPDLD_ASSIGN(PlannedSwap swap, plan_swap(job, base, vars, request, progress_to(session),
                                           pipeline::VariantFiles::kNow));
  swap.by_consumer = true;
  std::vector<PlannedSwap> swaps{std::move(swap)};
  SPDLD_TRY(prepare_swaps(swaps, request.at));
  MutexLock writing(records_);
  Status kept = check_prepared(swaps);
  if (kept.ok()) kept = deps_.store.put_jobs(stored_after(swaps));
  if (!kept.ok()) {
    abort_swaps(swaps);
    return tl::unexpected<Status>(std::move(kept));
  }
  commit_swaps(swaps);
  return std::move(swaps.front());
}

void Sessions::apply(delivery::Connection& connection, const delivery::ApplyWish& wish) {
  SessionPtr session;
  bool too_many = false;
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(connection.id());
    if (found == sessions_.end()) return;
    session = found->second;
    too_many = std::count(applies_.begin(), applies_.end(), session) >= kMaxApplies;
    if (!too_many) applies_.push_back(session);
  }
  if (too_many) {
    connection.fail(Status(Code::kResourceExhausted,
                           std::to_string(kMaxApplies) + " applies of one consumer wait already"));
    return;
  }
  // All ranks may say the same at once: one does it, and the others find it done.
  applying_.post(connection.peer().uid, [this, session, wish] {
    try {
      answer_apply(session, wish);
    } catch (const std::exception& thrown) {
      session->connection->fail(
          Status(Code::kInternal, std::string("the apply failed: ") + thrown.what()));
    }
    MutexLock lock(mutex_);
    applies_.erase(std::find(applies_.begin(), applies_.end(), session));
  });
}

void Sessions::answer_apply(const SessionPtr& session, const delivery::ApplyWish& wish) {
  Result<PlannedSwap> swap = error(Code::kInternal, "the apply failed");
  try {
    swap = apply_vars(session, wish);
  } catch (const std::exception& thrown) {  // what the variables made too large, say
    swap = error(Code::kInternal, std::string("the apply failed: ") + thrown.what());
  }
  if (!swap) {
    session->connection->send_refused(wish.serial, swap.error());
    return;
  }
  session->connection->send_applied(wish.serial, {.version = swap->phase->version(),
                                                  .epoch = swap->from.epoch,
                                                  .step = swap->from.step,
                                                  .tuned = swap->tuned});
}

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#include "session/rank_applies.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "session/pipeline_finder.h"

namespace spdld::session {
namespace {

// Of one consumer: beyond it something asks again and again without waiting for an answer.
constexpr std::ptrdiff_t kMaxApplies = 4;

}  // namespace

Result<PlannedSwap> RankApplies::apply_vars(const SessionPtr& session,
                                            const delivery::ApplyWish& wish, bool& is_stale) {
  JobPtr job;
  pipeline::PipelinePtr base;
  SwapVars vars{.own = wish.vars, .overrides = {}};
  {
    MutexLock lock(table_.mutex());
    job = session->job;
    if (job == nullptr || session->consumer == nullptr || session->closed)
      return error(Code::kFailedPrecondition, "the consumer is not attached");
    base = job->state.plan->last_phase()->pipeline;
    vars.own.insert(job->state.vars.begin(), job->state.vars.end());
    vars.overrides = job->state.plan->last_phase()->overrides;
    for (const auto& [name, value] : wish.vars) vars.overrides.erase(name);
  }
  SwapRequest request{.job = job->key.job,
                      .at = {.kind = SwapAt::Kind::kNow, .step = {wish.epoch, wish.step}},
                      .allow_schema_change = wish.allow_schema_change};
  if (wish.at == wire::ApplyAt::kNextEpoch) request.at.kind = SwapAt::Kind::kNextEpoch;
  if (wish.at == wire::ApplyAt::kStep) request.at.kind = SwapAt::Kind::kStep;
  SPDLD_ASSIGN(PlannedSwap swap, planner_.plan(job, base, vars, request, progress_to(session),
                                               pipeline::VariantFiles::kNow));
  swap.by_consumer = true;
  std::vector<PlannedSwap> swaps{std::move(swap)};
  Status kept =
      swaps_.carry_out(swaps, request.at, [this](const std::vector<store::StoredJob>& records) {
        return deps_.store.put_jobs(records);
      });
  is_stale = swaps.front().is_stale;
  if (!kept.ok()) return tl::unexpected<Status>(std::move(kept));
  return std::move(swaps.front());
}

std::vector<SessionPtr> RankApplies::waiting() const {
  MutexLock lock(mutex_);
  return waiting_;
}

void RankApplies::apply(delivery::Connection& connection, const delivery::ApplyWish& wish) {
  const SessionPtr session = table_.find(connection.id());
  if (session == nullptr) return;
  job::JobKey key{.uid = connection.peer().uid, .job = {}, .pipeline = {}};
  {
    MutexLock lock(table_.mutex());
    if (session->job != nullptr) key = session->job->key;
  }
  bool too_many = false;
  {
    MutexLock lock(mutex_);
    too_many = std::count(waiting_.begin(), waiting_.end(), session) >= kMaxApplies;
    if (!too_many) waiting_.push_back(session);
  }
  if (too_many) {
    connection.fail(Status(Code::kResourceExhausted,
                           std::to_string(kMaxApplies) + " applies of one consumer wait already"));
    return;
  }
  // All ranks may say the same at once: one does it, and the others find it done.
  const Status posted = changing_.post(key, [this, session, wish] {
    try {
      answer(session, wish);
    } catch (const std::exception& thrown) {
      session->connection->fail(
          Status(Code::kInternal, std::string("the apply failed: ") + thrown.what()));
    }
    forget(session);
  });
  if (posted.ok()) return;
  forget(session);
  connection.send_refused(wish.serial, posted);
}

void RankApplies::forget(const SessionPtr& session) {
  MutexLock lock(mutex_);
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), session));
}

void RankApplies::answer(const SessionPtr& session, const delivery::ApplyWish& wish) {
  Result<PlannedSwap> swap = error(Code::kInternal, "the apply failed");
  try {
    swap = plan_until_fresh<PlannedSwap>(
        [&](bool& is_stale) { return apply_vars(session, wish, is_stale); });
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

// SPDX-License-Identifier: Apache-2.0
// What consumers ask to change: the part of Sessions behind Loader.apply().
#include <algorithm>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
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
  PipelinePtr base;
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
    // To a rank that is no refusal: it asks again once an operator has made up his mind.
    if (job->changes() || yet_to_jump(*job) != nullptr)
      return error(Code::kUnavailable, check_settled(*job).message());
    base = job->timeline.last_phase()->pipeline;
    vars.own.insert(job->vars.begin(), job->vars.end());
    vars.overrides = job->timeline.last_phase()->overrides;
    for (const auto& [name, value] : wish.vars) vars.overrides.erase(name);
  }
  SwapRequest request{.job = job->key.job,
                      .at = {.kind = SwapAt::Kind::kNow, .step = {wish.epoch, wish.step}},
                      .allow_schema_change = wish.allow_schema_change};
  if (wish.at == wire::ApplyAt::kNextEpoch) request.at.kind = SwapAt::Kind::kNextEpoch;
  if (wish.at == wire::ApplyAt::kStep) request.at.kind = SwapAt::Kind::kStep;
  SPDLD_ASSIGN(PlannedSwap swap, plan_swap(job, base, vars, request, progress_to(session)));
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
  MutexLock lock(mutex_);
  const auto found = sessions_.find(connection.id());
  if (found == sessions_.end()) return;
  // All ranks may say the same at once: one does it, the others find it done, and no thread waits.
  const bool under_way = !applies_.empty();
  const auto same = [&](const WaitingApply& waits) { return waits.session == found->second; };
  if (std::count_if(applies_.begin(), applies_.end(), same) >= kMaxApplies) {
    connection.fail(Status(Code::kResourceExhausted,
                           std::to_string(kMaxApplies) + " applies of one consumer wait already"));
    return;
  }
  applies_.push_back({found->second, wish});
  if (!under_way) slow_.post([this] { apply_waiting(); });
}

void Sessions::apply_waiting() {
  while (true) {
    WaitingApply next;
    {
      MutexLock lock(mutex_);
      next = applies_.front();
    }
    try {
      answer_apply(next);
    } catch (const std::exception& thrown) {
      next.session->connection->fail(
          Status(Code::kInternal, std::string("the apply failed: ") + thrown.what()));
    }
    MutexLock lock(mutex_);
    applies_.pop_front();
    if (applies_.empty()) return;
  }
}

void Sessions::answer_apply(const WaitingApply& waiting) {
  Result<PlannedSwap> swap = error(Code::kInternal, "the apply failed");
  try {
    swap = apply_vars(waiting.session, waiting.wish);
  } catch (const std::exception& thrown) {  // what the variables made too large, say
    swap = error(Code::kInternal, std::string("the apply failed: ") + thrown.what());
  }
  nlohmann::json answer;
  if (swap) {
    answer = {{"version", swap->phase->version()},
              {"epoch", swap->from.epoch},
              {"step", swap->from.step},
              {"tuned", swap->tuned}};
  } else {
    answer = {{"code", static_cast<int>(swap.error().code())}, {"error", swap.error().message()}};
  }
  waiting.session->connection->send_blob(
      wire::BlobKind::kApplied, waiting.wish.serial,
      std::make_shared<std::string>(
          answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

}  // namespace spdld::session

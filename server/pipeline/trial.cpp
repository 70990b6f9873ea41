// SPDX-License-Identifier: Apache-2.0
#include "pipeline/trial.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text/counted.h"
#include "engine/run.h"

namespace spdld::pipeline {
namespace {

// What a trial may write to beside the arenas' budget.
constexpr std::uint64_t kTrialBytes = std::uint64_t{256} << 20;
constexpr int kMostOfUser = 2;
// With those whose rows do not come, each of which has memory of its own.
constexpr int kMostOfUserInAll = 8;
constexpr std::chrono::milliseconds kStalledAfter{200};

// A permit, and what it is given back to.
struct Permitted {
  std::shared_ptr<UserPermits> permits;
  UserPermits::Permit permit;
};

std::string replaced_text(const PipelineVersion& pipeline,
                          const std::vector<engine::LoggedFailure>& failures) {
  const engine::FailureFacts& first = failures.front().facts;
  return "pipeline '" + pipeline.name() + "': in a first batch " +
         counted(failures.size(), "item") +
         " could not be made, and on_error has had others take the place; the first: " +
         (first.sample ? first.sample->uri + ": " : "") + first.message;
}

}  // namespace

Trials::Trials(engine::Executor& executor, const Clock& clock, UserCode code)
    : executor_(executor),
      clock_(clock),
      code_(std::move(code)),
      permits_(std::make_shared<UserPermits>(kMostOfUser, kMostOfUserInAll)) {}

Result<MadeBatch> Trials::make(uid_t user, const PipelineVersion& pipeline,
                               const std::shared_ptr<engine::Run>& run, job::StepAt at,
                               const source::BatchRows& rows, const ListingProgress& progress) {
  auto permit = permits_->take(user, [&] {
    return !progress || progress(0, "rows of a batch (others of this user are being made)", {});
  });
  if (!permit) return error(Code::kCancelled, "nobody waits for the batch any more");
  const auto permitted = std::make_shared<Permitted>(Permitted{permits_, *std::move(permit)});
  std::uint64_t seen = 0;
  auto moved_at = clock_.now();
  const auto watched = [&](std::uint64_t made, const std::string& what,
                           const std::vector<std::string>& pools) {
    const auto now = clock_.now();
    if (std::exchange(seen, made) != made) moved_at = now;
    const bool wanted = !progress || progress(made, what, pools);
    // Given up, it holds the permit until its last row comes back.
    permitted->permit.set_aside(!wanted || now - moved_at > kStalledAfter);
    return wanted;
  };
  return make_one_batch(
      run, {.at = at, .rows = rows, .replace_budget = pipeline.replace_budget(), .held = permitted},
      executor_, watched);
}

Result<MadeBatch> Trials::make_step(uid_t user, const PipelineVersion& pipeline, std::uint64_t seed,
                                    job::StepAt at, const source::BatchRows& rows,
                                    const ListingProgress& progress) {
  SPDLD_ASSIGN(source::Sampler sampler, pipeline.sampler(seed));
  SPDLD_ASSIGN(RowCallers callers, open_callers(code_, pipeline, user));
  const auto run = std::make_shared<engine::Run>(pipeline.plan, pipeline.source, std::move(sampler),
                                                 seed, executor_.pool(), engine::RunLimits{},
                                                 clock_, nullptr, std::move(callers));
  return make(user, pipeline, run, at, rows, progress);
}

Result<MadeBatch> Trials::make_first(uid_t user, const PipelineVersion& pipeline,
                                     std::uint64_t rows, const ListingProgress& progress) {
  const engine::Plan& plan = *pipeline.plan;
  rows = std::clamp<std::uint64_t>(rows, 1, std::min(pipeline.rows(), plan.layout.rows()));
  return make_step(user, pipeline, plan.spec.seed, {}, {.first = 0, .rows = rows, .valid = rows},
                   progress);
}

Result<std::vector<std::string>> Trials::first_batch(uid_t user, const PipelineVersion& pipeline,
                                                     const ListingProgress& progress) {
  const engine::Plan& plan = *pipeline.plan;
  const std::uint64_t row_bytes =
      std::max<std::uint64_t>(plan.layout.slot_bytes() / plan.layout.rows(), 1);
  const auto made = make_first(user, pipeline, kTrialBytes / row_bytes, progress);
  if (!made)
    return tl::unexpected<Status>(made.error().with_context("a first batch could not be made"));
  std::vector<std::string> warnings;
  if (!made->failures.empty()) warnings.push_back(replaced_text(pipeline, made->failures));
  return warnings;
}

}  // namespace spdld::pipeline

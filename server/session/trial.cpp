// SPDX-License-Identifier: Apache-2.0
#include "session/trial.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/run.h"

namespace spdld::session {
namespace {

// Bounds the memory that a trial touches beside the arenas' budget.
constexpr std::uint64_t kTrialBytes = std::uint64_t{256} << 20;

std::uint64_t trial_rows(const engine::Plan& plan, std::uint64_t items) {
  const std::uint64_t rows = std::min(plan.layout.rows(), items);
  // Whether encoded rows fit batch.max_bytes is told by all of them together.
  if (!plan.image) return rows;
  const std::uint64_t row_bytes =
      std::max<std::uint64_t>(plan.layout.slot_bytes() / plan.layout.rows(), 1);
  return std::clamp<std::uint64_t>(kTrialBytes / row_bytes, 1, rows);
}

}  // namespace

Status try_first_batch(const PipelineVersion& pipeline, engine::Executor& executor,
                       const Clock& clock, const BatchProgress& progress) {
  const engine::Plan& plan = *pipeline.plan;
  const std::uint64_t items = pipeline.source->size();
  const std::uint64_t seed = plan.spec.seed;
  auto run = std::make_shared<engine::Run>(pipeline.plan, pipeline.source,
                                           source::Sampler(items, plan.spec.shuffle, seed), seed,
                                           executor.threads(), engine::RunLimits{}, clock);
  const std::uint64_t rows = trial_rows(plan, items);
  const auto made =
      make_one_batch(run, {}, {.first = 0, .rows = rows, .valid = rows}, executor, progress);
  return made ? Status() : made.error().with_context("a first batch could not be made");
}

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"
#include "engine/failure_log.h"
#include "engine/run.h"
#include "job/step_at.h"
#include "pipeline/listings.h"

namespace spdld::pipeline {

struct OneBatchOptions {
  job::StepAt at = {};
  source::BatchRows rows = {};
  std::uint64_t replace_budget = 0;  // items that `on_error` may replace
  // Let go of when the last row has ended, also of a batch that was given up.
  std::shared_ptr<const void> held = nullptr;
};

struct MadeBatch {
  std::unique_ptr<std::byte[]> slot;  // memory of its own, laid out as the plan's batches are
  std::vector<engine::LoggedFailure> failures;  // of items that others have replaced in it
};

// Makes one batch with `run` on the executor, beside whatever else runs there. Blocks until the
// batch is there, has failed, or `progress` (may be empty), which is asked several times a second,
// gives up: kCancelled.
Result<MadeBatch> make_one_batch(const std::shared_ptr<engine::Run>& run, OneBatchOptions options,
                                 engine::Executor& executor, const ListingProgress& progress);

}  // namespace spdld::pipeline

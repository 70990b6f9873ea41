// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"
#include "engine/failure_log.h"
#include "engine/run.h"
#include "job/step_at.h"

namespace spdld::pipeline {

// Called several times a second with how many rows are there, and of what; false gives up.
using BatchProgress = std::function<bool(std::uint64_t rows, const std::string& what)>;

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
// batch is there, has failed, or `progress` (may be empty) gives up: kCancelled.
Result<MadeBatch> make_one_batch(const std::shared_ptr<engine::Run>& run, OneBatchOptions options,
                                 engine::Executor& executor, const BatchProgress& progress);

}  // namespace spdld::pipeline

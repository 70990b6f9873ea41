// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "engine/executor.h"
#include "session/catalogue.h"
#include "session/step_at.h"
#include "session/views.h"

namespace spdld::session {

// Makes the batch of these rows in memory of its own, with `run`, and forgets it: what works here
// works in a job. Blocks.
Status make_trial(const std::shared_ptr<engine::Run>& run, StepAt at, const source::BatchRows& rows,
                  engine::Executor& executor);

// Makes the first `rows` rows of epoch 0 on the executor, beside whatever else runs there, into
// memory of its own. Blocks until they are there.
Result<PreviewView> make_preview(const PipelineVersion& pipeline, std::uint64_t rows,
                                 engine::Executor& executor, const Clock& clock);

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "engine/executor.h"
#include "session/catalogue.h"
#include "session/one_batch.h"
#include "session/views.h"

namespace spdld::session {

// Makes the first `rows` rows of epoch 0 on the executor, beside whatever else runs there, into
// memory of its own. Blocks until they are there, or `progress` gives up.
Result<PreviewView> make_preview(const PipelineVersion& pipeline, std::uint64_t rows,
                                 engine::Executor& executor, const Clock& clock,
                                 const BatchProgress& progress);

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "engine/executor.h"
#include "session/catalogue.h"
#include "session/one_batch.h"

namespace spdld::session {

// Makes the first rows of epoch 0 as a consumer of this pipeline would get them, and forgets them:
// a data error that `on_error` does not allow, or a batch that cannot be packed, comes to light
// before anybody waits for it. The rows are a whole batch, or as many of it as take 256 MiB.
// Blocks.
Status try_first_batch(const PipelineVersion& pipeline, engine::Executor& executor,
                       const Clock& clock, const BatchProgress& progress);

}  // namespace spdld::session

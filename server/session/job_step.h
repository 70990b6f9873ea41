// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "session/job.h"
#include "session/views.h"
#include "source/order/sharding.h"

namespace spdld::session {

// One shard's batch of a job's step: all that its bytes follow from.
struct JobStep {
  StepView view;  // without the batch
  pipeline::PhasePtr phase;
  source::BatchRows rows;
};

// The batch that the shard was given at this place, or will be; where it was several times, the
// last one. JobTable::mutex() is held.
Result<JobStep> step_of(const Job& job, job::StepAt at, std::uint32_t shard);

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/status.h"
#include "job/schedule.h"

namespace spdld::job {

// A step of a job, over all shards: the version, the number of shards and the position that it has.
struct FoundStep {
  // The last turn at which a member was sent the step, else the first one at which it will be.
  // None: the run does not come to the step, and the state is that of a seek to it behind all other
  // edits.
  std::optional<Turn> turn;
  State state;
};

// Where a member of these own seeks, that was sent every turn before `sent`, has this step.
// kOutOfRange: the epoch has fewer steps. kFailedPrecondition: the step lies before the log, so
// that nothing tells which version it had.
Result<FoundStep> find_step(const Schedule& schedule, const OwnSeeks& own, StepAt place, Turn sent);

}  // namespace spdld::job

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "job/state.h"
#include "session/step_times.h"
#include "stream/stream.h"

namespace spdld::session {

// A measurement of a consumer's loop (headspace.h): the turn at which the loop is held, and when it
// gave batches back. A value without a lock of its own, under that of its consumer.
struct Gate {
  const Clock& clock;
  job::Turn until = job::kNoTurn;            // the consumer is sent no turn from here on
  std::uint32_t seek = 0;                    // the serial of the loop's last seek when it began
  std::vector<StepTimes::Given> given = {};  // batches, in their order
  std::vector<std::shared_ptr<stream::Stream>> held = {};  // these begin no batch
};

}  // namespace spdld::session

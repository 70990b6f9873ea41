// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "session/changes.h"
#include "session/swap_plan.h"

namespace spdld::session {

// The last version that a job was given, and the one that it runs, or ran, before.
struct LastChange {
  std::uint32_t version = 0;  // of the schedule, as before_version
  job::StepAt since;
  pipeline::PhasePtr before;
  std::uint32_t before_version = 0;
  job::StepAt before_since;
  bool lies_ahead = false;  // none of its steps has been begun
  bool planned = false;     // it has no turn yet
};
LastChange last_change(const Job& job, job::Turn frontier);

// Decides where the swap is to be, with the job held, and says so in its change, which begins at
// the job's frontier. Afterwards the swap may be known, and then nothing is to be done.
Status place_swap(PlannedSwap& swap, const SwapAt& at, Change& change);

// In steps per second, of the fastest rank; none: one of them has only just come. 0: there is none.
std::optional<double> pace_of(const Job& job);

// The plan no longer fits: it is to be made again.
Status changed_meanwhile(PlannedSwap& swap);

}  // namespace spdld::session

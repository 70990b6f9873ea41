// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "delivery/frames.h"
#include "session/catalogue.h"
#include "session/phase.h"
#include "session/store.h"
#include "session/timeline.h"

namespace spdld::session {

// Others go on with a job in a world of `num_shards`, at the request's cursor or, without one, at
// `ledger`.
void take_over(Timeline& timeline, const delivery::AttachRequest& request, StepAt ledger,
               std::uint32_t num_shards);

// Whether ranks that give these variables belong to such a job: they may know of what was applied
// to it, or not.
template <typename Job>
bool same_vars(const Job& job, const std::map<std::string, std::string>& vars) {
  return vars == job.first_vars || vars == job.vars;
}

std::uint64_t unix_ms();  // now

// A pipeline as the store keeps it, and how it came to be the current version.
StoredPipeline stored_pipeline(const PipelineVersion& pipeline);
StoredRevision stored_revision(const PipelineVersion& pipeline, uid_t applied_by,
                               std::string note = {});

StoredPhase stored_phase(const Phase& phase);

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "delivery/frames.h"
#include "pipeline/catalogue.h"
#include "pipeline/phase.h"
#include "store/store.h"
#include "stream/timeline.h"

namespace spdld::session {

// Others go on with a job in a world of `num_shards`, at the request's cursor or, without one, at
// `ledger`.
void take_over(stream::Timeline& timeline, const delivery::AttachRequest& request,
               job::StepAt ledger, std::uint32_t num_shards);

// Whether ranks that give these variables belong to a job that had `first` when its first one
// attached, and has `now`: they may know of what was applied to it, or not.
inline bool same_vars(const std::map<std::string, std::string>& first,
                      const std::map<std::string, std::string>& now,
                      const std::map<std::string, std::string>& given) {
  return given == first || given == now;
}

// A pipeline as the store keeps it, and how it came to be the current version.
store::StoredPipeline stored_pipeline(const pipeline::PipelineVersion& pipeline);
store::StoredRevision stored_revision(const pipeline::PipelineVersion& pipeline, uid_t applied_by,
                                      std::string note = {});

store::StoredPhase stored_phase(const pipeline::Phase& phase);

}  // namespace spdld::session

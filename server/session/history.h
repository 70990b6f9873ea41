// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/pipeline_version.h"
#include "store/store.h"

// The versions that a pipeline had, as rollbacks see them.
namespace spdld::session {

// The note of a version that repeats an earlier one.
std::string rollback_note(std::uint32_t version);
// Null: there is none.
const store::StoredRevision* find_revision(const std::vector<store::StoredRevision>& revisions,
                                           std::uint32_t version);
// The version that was current when the one that is current now was applied: rollbacks are no steps
// of that way. `name`: as the caller calls the pipeline.
Result<const store::StoredRevision*> one_further_back(
    const std::vector<store::StoredRevision>& revisions, const pipeline::PipelineVersion& current,
    const std::string& name);

}  // namespace spdld::session

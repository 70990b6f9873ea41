// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/status.h"
#include "pipeline/pipeline_version.h"
#include "pipeline/preview_view.h"
#include "pipeline/trial.h"

namespace spdld::pipeline {

// Makes the first `rows` rows of epoch 0 for this user. Blocks until they are there, or `progress`
// gives up.
Result<PreviewView> make_preview(uid_t user, const PipelineVersion& pipeline, std::uint64_t rows,
                                 Trials& trials, const ListingProgress& progress);

// Makes one batch of a job of this seed. Blocks likewise.
Result<PreviewView> show_step(uid_t user, const PipelineVersion& pipeline, std::uint64_t seed,
                              job::StepAt at, const source::BatchRows& rows, Trials& trials,
                              const ListingProgress& progress);

}  // namespace spdld::pipeline

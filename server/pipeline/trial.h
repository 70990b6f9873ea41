// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/users/user_permits.h"
#include "engine/executor.h"
#include "pipeline/one_batch.h"
#include "pipeline/pipeline_version.h"
#include "pipeline/user_code.h"

namespace spdld::pipeline {

// Makes batches that nobody is handed, beside whatever else the executor makes: to find out whether
// a pipeline can be used, or to show some of its rows. A user has two of them at once that come on,
// and eight with those whose rows do not come; one that was given up counts among these until its
// last row has ended, which takes as long as its storage does.
// Thread-safe. Owned by Sessions; the executor outlives it.
class Trials {
 public:
  Trials(engine::Executor& executor, const Clock& clock, UserCode code = {});

  // A batch with `run`, whose rows are of `pipeline`. Blocks until the batch is there, has failed,
  // or `progress` (may be empty) gives up: kCancelled.
  Result<MadeBatch> make(uid_t user, const PipelineVersion& pipeline,
                         const std::shared_ptr<engine::Run>& run, job::StepAt at,
                         const source::BatchRows& rows, const ListingProgress& progress);

  // With a run of its own, in the order of `seed`. As make() otherwise.
  Result<MadeBatch> make_step(uid_t user, const PipelineVersion& pipeline, std::uint64_t seed,
                              job::StepAt at, const source::BatchRows& rows,
                              const ListingProgress& progress);
  // The first `rows` of epoch 0, in the order of the pipeline's own seed.
  Result<MadeBatch> make_first(uid_t user, const PipelineVersion& pipeline, std::uint64_t rows,
                               const ListingProgress& progress);

  // Makes the first batch and forgets it: a data error that `on_error` does not allow, or a batch
  // that cannot be packed, comes to light before anybody waits for it. Of a batch of more than
  // 256 MiB only as many rows are made as take about that. Blocks as make() does. Returns what the
  // user should know though nothing failed: which items `on_error` has had replaced.
  Result<std::vector<std::string>> first_batch(uid_t user, const PipelineVersion& pipeline,
                                               const ListingProgress& progress);

 private:
  engine::Executor& executor_;
  const Clock& clock_;
  const UserCode code_;
  // Shared with the batches, which may outlive this.
  const std::shared_ptr<UserPermits> permits_;
};

}  // namespace spdld::pipeline

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan/plan_facts.h"
#include "pipeline/trial.h"
#include "session/deps.h"

namespace spdld::session {

// Finds out whether a pipeline works before it takes the place of another one. Owned by Sessions.
// Thread-safe.
class NewPipelines {
 public:
  NewPipelines(const SessionsDeps& deps, pipeline::Trials& trials) : deps_(deps), trials_(trials) {}

  // Nothing is asked of one that is there already. Where jobs change to it, they make a batch of it
  // themselves. Returns warnings for the caller.
  Result<std::vector<std::string>> check(const job::Caller& caller,
                                         const pipeline::PipelinePtr& built, bool makes_batch,
                                         const pipeline::Catalogue::Progress& progress);
  // Of one consumer of the plan, with as many credits as the plan gives.
  delivery::ArenaShape arena_shape(const engine::Plan& plan) const;
  std::optional<engine::PlanFacts::OnGpu> on_gpu(const engine::Plan& plan) const;

 private:
  // kResourceExhausted if no consumer that takes it as it stands could ever be given its arena.
  Status check_fits(const job::Caller& caller, const engine::Plan& plan) const;
  // The same of its slots on a GPU; a warning, if it may do without.
  Result<std::vector<std::string>> check_fits_gpu(const engine::Plan& plan) const;

  const SessionsDeps& deps_;
  pipeline::Trials& trials_;
};

}  // namespace spdld::session

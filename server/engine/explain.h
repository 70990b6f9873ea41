// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/cache/sample_cache_cost.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_facts.h"

namespace spdld::engine {

// What the plan will run on.
struct ExplainContext {
  std::uint64_t items = 0;
  std::uint64_t classes = 0;
  std::uint32_t num_shards = 1;
  std::uint32_t credits = 0;
  unsigned cpu_threads = 0;
  int io_threads = 256;           // at most
  std::uint64_t arena_bytes = 0;  // of one consumer
  std::uint64_t arena_used = 0;   // of the budget, now
  std::uint64_t arena_budget = 0;
  std::string arena_kind;
  std::optional<CacheEstimate> cache = std::nullopt;         // if the plan asks for one
  std::optional<PlanFacts::Padding> padding = std::nullopt;  // if the order goes by length
  std::optional<PlanFacts::OnGpu> on_gpu = std::nullopt;     // if it is delivered to GPUs
};

// "3 items"; where each stands in an epoch several times, "3 items of 4 rows each".
std::string items_text(std::uint64_t items, const Repeat& repeat);
// Why an epoch has no step, and what to do: so many items do not fill one. Empty: it has some.
std::string no_step_text(const Plan& plan, std::uint64_t items, std::uint32_t num_shards);
// That the daemon can deliver to no GPU now, and what becomes of loaders. Empty: it can, or need
// not.
std::string no_gpu_text(const PlanFacts::OnGpu& gpu);
// The physical plan: what runs as one task, what a batch holds and takes, how much of the arena
// budget the consumers need.
PlanFacts plan_facts(const Plan& plan, const ExplainContext& context);
// The same for people.
std::string explain(const Plan& plan, const ExplainContext& context);

}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "engine/stream_port.h"
#include "job/state.h"
#include "pipeline/phase.h"

namespace spdld::stream {

// Counts a stream's batches: 0, 1, 2, …
using Index = std::uint64_t;
inline constexpr Index kNoIndex = std::numeric_limits<Index>::max();

// One shard's batches of one version from a place on, epoch after epoch, for as long as nothing is
// changed. A plain value; immutable.
class Span {
 public:
  // `from` is settled and has more shards than `shard`; its version is `phase`.
  Span(pipeline::PhasePtr phase, const job::State& from, std::uint32_t shard);

  const pipeline::PhasePtr& phase() const { return phase_; }
  std::uint32_t shard() const { return shard_; }
  // The place of a batch, over all shards.
  job::State at(Index index) const { return job::advanced(from_, index, versions_); }
  // Without a slot and a ticket.
  engine::BatchOrder order(Index index) const;
  // Which batch has this place; none: the span does not come to it.
  std::optional<Index> index_of(job::StepAt at, std::uint64_t position) const;
  std::optional<Index> index_of(job::StepAt at) const;
  // From which of these batches on all batches of `other` follow; none: the two do not meet.
  std::optional<Index> index_of(const Span& other) const;

 private:
  const pipeline::PhasePtr phase_;
  const std::uint32_t shard_;
  const job::Versions versions_;  // the phase's alone
  const job::State from_;
};

// The facts of the phase that decide which rows a step has.
job::VersionFacts facts_of(const pipeline::Phase& phase);

}  // namespace spdld::stream

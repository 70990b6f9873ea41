// SPDX-License-Identifier: Apache-2.0
#include "stream/span.h"

#include <utility>

#include "base/check.h"

namespace spdld::stream {
namespace {

constexpr std::uint32_t kOnly = 0;

job::State of_only_version(job::State state) {
  state.version = state.next_version = kOnly;
  return state;
}

}  // namespace

job::VersionFacts facts_of(const pipeline::Phase& phase) {
  return {.items = phase.rows(),
          .tail = phase.tail,
          .batch = phase.batch,
          .order = phase.order_text(),
          .group = phase.repeat.group()};
}

Span::Span(pipeline::PhasePtr phase, const job::State& from, std::uint32_t shard)
    : phase_(std::move(phase)),
      shard_(shard),
      versions_{{kOnly, facts_of(*phase_)}},
      from_(of_only_version(from)) {
  SPDLD_CHECK(shard < from.shards);
}

engine::BatchOrder Span::order(Index index) const {
  const job::State state = at(index);
  const source::Sharding sharding = job::sharding(state, versions_);
  return {.epoch = state.epoch,
          .step = state.step,
          .rows = sharding.rows(state.step, shard_),
          .next_position = sharding.position_of(state.step + 1)};
}

std::optional<Index> Span::index_of(job::StepAt place) const {
  const std::uint64_t index = job::steps_until(from_, place, versions_);
  if (index == job::kNoTurn || at(index).at() != place) return std::nullopt;
  return index;
}

std::optional<Index> Span::index_of(job::StepAt place, std::uint64_t position) const {
  const auto index = index_of(place);
  return index && at(*index).position == position ? index : std::nullopt;
}

std::optional<Index> Span::index_of(const Span& other) const {
  const job::VersionFacts& has = versions_.at(kOnly);
  const job::VersionFacts& wants = other.versions_.at(kOnly);
  if (shard_ != other.shard_ || from_.shards != other.from_.shards || has.items != wants.items ||
      has.tail != wants.tail || has.batch != wants.batch || !phase_->may_share(*other.phase_))
    return std::nullopt;
  return index_of(other.from_.at(), other.from_.position);
}

}  // namespace spdld::stream

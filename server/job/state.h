// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "base/status.h"
#include "job/step_at.h"
#include "op/order_spec.h"
#include "source/order/sharding.h"

namespace spdld::job {

// How many batches a rank's loop has been handed in a run. A turn only grows, by one a batch,
// through epochs, seeks, skips, resizes and swaps; ranks in lockstep have the same one.
using Turn = std::uint64_t;
inline constexpr Turn kNoTurn = std::numeric_limits<Turn>::max();

// The facts of a pipeline version that decide which rows a step has.
struct VersionFacts {
  std::uint64_t items = 0;  // each as often as it stands in an epoch
  Tail tail = Tail::kDrop;
  std::uint64_t batch = 0;  // rows a shard
  // The order digest that cursors name. Versions of one order have the same items.
  std::string order;
  std::uint64_t group = 0;  // Repeat::group()

  friend bool operator==(const VersionFacts&, const VersionFacts&) = default;
};
// By number.
using Versions = std::map<std::uint32_t, VersionFacts>;

// The largest epoch and step that a place may name: far beyond the counts of any job, and far
// enough from the end of 64 bits for sums.
inline constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 48;
// kInvalidArgument where no job, of any version, has such a place.
Status check_place(StepAt place);
// The same where `position` lies behind the last of so many items.
Status check_position(std::uint64_t position, std::uint64_t items);

// Which step a turn is, over all shards. A plain value. A settled state has a step of its epoch
// left, and at position 0 no version waits. `versions` below holds both versions of the state.
struct State {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint32_t shards = 1;
  std::uint32_t version = 0;
  // Runs from the next position 0 on, be it the next epoch's start or that of a seek; `version`
  // where no other one waits.
  std::uint32_t next_version = 0;

  StepAt at() const { return {.epoch = epoch, .step = step}; }
  friend bool operator==(const State&, const State&) = default;
};

// The rest of the state's epoch, cut into steps; rows(state.step, shard) are those of the state.
source::Sharding sharding(const State& state, const Versions& versions);
// Of a whole epoch; 0: the items do not make one step.
std::uint64_t steps_per_epoch(const VersionFacts& version, std::uint32_t shards);

// The next epoch's start where no step is left, and there the version that waits.
State settled(State state, const Versions& versions);
// So many steps on, through epochs, in constant time. `state` is settled; so is the result.
State advanced(State state, std::uint64_t steps, const Versions& versions);
// The same, but no further than to the next epoch's start.
State skipped(const State& state, std::uint64_t steps, const Versions& versions);

// How many steps it takes from a settled state to the first one at or behind `place`, and to an
// epoch's start. 0: it is there. kNoTurn: more than can be counted.
std::uint64_t steps_until(const State& state, StepAt place, const Versions& versions);
std::uint64_t steps_until_epoch_start(const State& state, const Versions& versions);

}  // namespace spdld::job

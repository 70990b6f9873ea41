// SPDX-License-Identifier: Apache-2.0
#include "job/state.h"

#include <algorithm>

#include "base/check.h"
#include "base/text/counted.h"

namespace spdld::job {
namespace {

const VersionFacts& facts(const Versions& versions, std::uint32_t number) {
  const auto found = versions.find(number);
  SPDLD_CHECK(found != versions.end());
  return found->second;
}

State next_epoch(const State& state) {
  return {.epoch = state.epoch + 1,
          .step = 0,
          .position = 0,
          .shards = state.shards,
          .version = state.next_version,
          .next_version = state.next_version};
}

std::uint64_t steps_left(const State& state, const Versions& versions) {
  return sharding(state, versions).end_step() - state.step;
}

}  // namespace

Status check_place(StepAt place) {
  if (place.epoch <= kMaxCount && place.step <= kMaxCount) return {};
  return Status(Code::kInvalidArgument,
                place_text(place) + " is no place in a job: neither goes beyond " +
                    std::to_string(kMaxCount) + "; name one that the job comes to");
}

Status check_position(std::uint64_t position, std::uint64_t items) {
  if (position <= items) return {};
  return Status(Code::kInvalidArgument, "the position " + std::to_string(position) +
                                            " lies behind the last of " + counted(items, "item") +
                                            ": go on from a state of this dataset, or begin "
                                            "afresh");
}

source::Sharding sharding(const State& state, const Versions& versions) {
  const VersionFacts& version = facts(versions, state.version);
  return source::Sharding(version.items, version.tail,
                          {.base = state.position,
                           .first_step = state.step,
                           .num_shards = state.shards,
                           .batch = version.batch},
                          version.group);
}

std::uint64_t steps_per_epoch(const VersionFacts& version, std::uint32_t shards) {
  return source::Sharding(version.items, version.tail,
                          {.num_shards = shards, .batch = version.batch}, version.group)
      .end_step();
}

State settled(State state, const Versions& versions) {
  if (state.position == 0) {
    state.version = state.next_version;
    return state;
  }
  return steps_left(state, versions) > 0 ? state : next_epoch(state);
}

State advanced(State state, std::uint64_t steps, const Versions& versions) {
  const source::Sharding rest = sharding(state, versions);
  const std::uint64_t left = rest.end_step() - state.step;
  if (steps < left) {
    state.step += steps;
    state.position = rest.position_of(state.step);
    return state;
  }
  steps -= left;
  state = next_epoch(state);
  const source::Sharding whole = sharding(state, versions);
  const std::uint64_t each = whole.end_step();
  if (each == 0) return state;
  state.epoch += steps / each;
  state.step = steps % each;
  state.position = whole.position_of(state.step);
  return state;
}

State skipped(const State& state, std::uint64_t steps, const Versions& versions) {
  return advanced(state, std::min(steps, steps_left(state, versions)), versions);
}

std::uint64_t steps_until(const State& state, StepAt place, const Versions& versions) {
  if (state.at() >= place) return 0;
  const std::uint64_t left = steps_left(state, versions);
  if (place.epoch == state.epoch) return std::min(place.step - state.step, left);
  const std::uint64_t each = steps_per_epoch(facts(versions, state.next_version), state.shards);
  const unsigned __int128 steps =
      left + static_cast<unsigned __int128>(place.epoch - state.epoch - 1) * each +
      std::min(place.step, each);
  return steps < kNoTurn ? static_cast<std::uint64_t>(steps) : kNoTurn;
}

std::uint64_t steps_until_epoch_start(const State& state, const Versions& versions) {
  return state.position == 0 ? 0 : steps_left(state, versions);
}

}  // namespace spdld::job

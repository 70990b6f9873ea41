// SPDX-License-Identifier: Apache-2.0
#include "job/found_step.h"

#include <string>

#include "base/text/counted.h"

namespace spdld::job {
namespace {

tl::unexpected<Status> no_such_step(StepAt place, std::uint64_t steps) {
  return error(Code::kOutOfRange, "epoch " + std::to_string(place.epoch) + " has " +
                                      counted(steps, "step") + "; there is no step " +
                                      std::to_string(place.step));
}

}  // namespace

Result<FoundStep> find_step(const Schedule& schedule, const OwnSeeks& own, StepAt place,
                            Turn sent) {
  SPDLD_TRY(check_place(place));
  const Versions& versions = schedule.record().versions;
  std::optional<FoundStep> found;
  // Of the epoch, as the run comes through it last.
  std::optional<std::uint64_t> steps;
  State last;
  for (Turn turn = schedule.record().oldest; turn != kNoTurn;) {
    // From here to the next change, states follow each other step by step.
    last = schedule.locate(turn, own);
    const Turn change = schedule.next_change(turn, own);
    const auto reached = [&](StepAt at) -> std::optional<FoundStep> {
      const std::uint64_t further = steps_until(last, at, versions);
      if (further >= change - turn) return std::nullopt;
      return FoundStep{.turn = turn + further, .state = schedule.locate(turn + further, own)};
    };
    const auto epoch = reached({.epoch = place.epoch, .step = 0});
    if (epoch && epoch->state.epoch == place.epoch)
      steps = schedule.sharding(epoch->state).end_step();
    const auto there = reached(place);
    if (there && there->state.at() == place && (!found || *there->turn < sent)) found = there;
    turn = change;
  }
  if (found) return *found;
  if (steps && place.step >= *steps) return no_such_step(place, *steps);
  if (const Turn oldest = schedule.record().oldest; oldest > 0)
    return error(Code::kFailedPrecondition, "it is not kept any more which version " +
                                                place_text(place) +
                                                " had: the changes that are kept begin at " +
                                                place_text(schedule.locate(oldest, own).at()));
  State there{.epoch = place.epoch,
              .shards = last.shards,
              .version = last.next_version,
              .next_version = last.next_version};
  const source::Sharding whole = schedule.sharding(there);
  if (place.step >= whole.end_step()) {
    if (!steps) return no_such_step(place, whole.end_step());
    return error(Code::kOutOfRange, "the run leaves out " + place_text(place) +
                                        ", and an epoch has " + counted(whole.end_step(), "step") +
                                        " now");
  }
  there.step = place.step;
  there.position = whole.position_of(place.step);
  return FoundStep{.turn = std::nullopt, .state = there};
}

}  // namespace spdld::job

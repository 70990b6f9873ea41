// SPDX-License-Identifier: Apache-2.0
#include "session/timeline.h"

#include <limits>
#include <string>

namespace spdld::session {
namespace {

// Far beyond what any job counts to, and far enough from the end of 64 bits for sums.
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 48;

}  // namespace

void Timeline::cut(const Cut& cut) {
  while (!cuts_.empty() && cuts_.back().from >= cut.from) cuts_.pop_back();
  cuts_.push_back(cut);
}

Status Timeline::check(StepAt at, std::uint64_t position) const {
  if (position > items_)
    return Status(Code::kInvalidArgument, "the position " + std::to_string(position) +
                                              " lies behind the last of " + std::to_string(items_) +
                                              " items");
  if (at.epoch > kMaxCount || at.step > kMaxCount)
    return Status(Code::kInvalidArgument,
                  "epoch " + std::to_string(at.epoch) + ", step " + std::to_string(at.step) +
                      " is no place in a job: neither goes beyond " + std::to_string(kMaxCount));
  return {};
}

void Timeline::resume(StepAt at, std::uint64_t position) {
  const source::Sharding known = sharding(at);
  if (at.step <= known.end_step() && known.position_of(at.step) == position) return;
  cut({.from = at, .position = position, .num_shards = num_shards()});
}

void Timeline::redeal(StepAt at, std::uint64_t position) {
  if (cuts_.empty() || cuts_.back().from <= at) return resume(at, position);
  cut({.from = at, .position = position, .num_shards = num_shards()});
}

source::Sharding Timeline::sharding(StepAt at) const {
  source::Segment segment{.num_shards = num_shards_, .batch = batch_};
  for (const Cut& cut : cuts_) {
    if (cut.from > at) break;
    segment.num_shards = cut.num_shards;
    const bool here = cut.from.epoch == at.epoch;
    segment.base = here ? cut.position : 0;
    segment.first_step = here ? cut.from.step : 0;
  }
  return source::Sharding(items_, tail_, segment);
}

std::uint64_t Timeline::end_step(std::uint64_t epoch) const {
  return sharding({epoch, std::numeric_limits<std::uint64_t>::max()}).end_step();
}

std::uint64_t Timeline::steps_per_epoch() const {
  return source::Sharding(items_, tail_, {.num_shards = num_shards(), .batch = batch_}).end_step();
}

}  // namespace spdld::session

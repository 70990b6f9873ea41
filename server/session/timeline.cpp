// SPDX-License-Identifier: Apache-2.0
#include "session/timeline.h"

#include <limits>

namespace spdld::session {

void Timeline::cut(const Cut& cut) {
  while (!cuts_.empty() && cuts_.back().from >= cut.from) cuts_.pop_back();
  cuts_.push_back(cut);
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

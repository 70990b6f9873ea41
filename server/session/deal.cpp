// SPDX-License-Identifier: Apache-2.0
#include "session/deal.h"

#include <cstddef>
#include <cstdint>

namespace spdld::session {
namespace {

// Whether `next` begins where its epoch's rows have got to by the cut before it.
bool leaves_none_out(const Timeline& timeline, const Timeline::Cut& next) {
  if (next.from.step == 0) return next.position == 0;
  const source::Sharding before = timeline.sharding({next.from.epoch, next.from.step - 1});
  return next.from.step <= before.end_step() && before.position_of(next.from.step) == next.position;
}

}  // namespace

StepAt dealt_from(const Timeline& timeline) {
  const auto& cuts = timeline.cuts();
  std::size_t last = cuts.size() - 1;
  while (last > 0 && cuts[last].num_shards == cuts[last - 1].num_shards &&
         leaves_none_out(timeline, cuts[last]))
    --last;
  return cuts[last].from;
}

}  // namespace spdld::session

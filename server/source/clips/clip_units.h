// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "op/media.h"

namespace spdld::source {

// How far a place that a few operations made of a time may be off: a tie is one all the same.
inline double rounding_of(double place) { return std::abs(place) * 1e-15; }

// The sample that a time names, which stands at `place`: the nearest one, the earlier of two.
inline std::int64_t nearest_sample(double place) {
  return static_cast<std::int64_t>(std::ceil(place - 0.5 - rounding_of(place)));
}

// What `ticks` of a time base are in units of which a second has `per_second`, and the reverse. A
// division last rounds once: `base.value()` times that would miss whole results.
inline double ticks_to_units(double ticks, const Ratio& base, double per_second) {
  return ticks * static_cast<double>(base.num) * per_second / static_cast<double>(base.den);
}
inline double seconds_to_ticks(double seconds, const Ratio& base) {
  return seconds * static_cast<double>(base.den) / static_cast<double>(base.num);
}

}  // namespace spdld::source

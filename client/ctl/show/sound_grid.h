// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ctl/daemon.h"
#include "ctl/show/grid.h"

namespace spdld::ctl {

// The sound of each row as its waveform, one below the other: of each pixel's time the least and
// the largest value, a channel below the other, the loudest value of all rows at the edge of its
// channel. It takes the first tensor of float32 with the shape [channels, samples] and up to 8
// channels, whether or not rows differ. Nothing: there is none. Throws Failure.
std::optional<Grid> sound_grid(const Preview& preview);

}  // namespace spdld::ctl

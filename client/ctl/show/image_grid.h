// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ctl/daemon.h"
#include "ctl/show/grid.h"

namespace spdld::ctl {

// The batch's images in reading order, each with its row's number in the corner; of clips, each a
// line of its frames. It takes the first dense tensor with the shape of images or clips
// (ctl/show/picture_shape.h), of uint8, uint16 or a float type; one of uint8 with one channel,
// which may be a mask, only where there is no other. Floats are stretched from their least to their
// largest value, over the whole batch. On images lie masks of their size, tinted by class, and
// boxes in the colours of their labels. Nothing: no tensor looks like images. Throws Failure.
std::optional<Grid> image_grid(const Preview& preview);

}  // namespace spdld::ctl

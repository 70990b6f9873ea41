// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/daemon.h"
#include "ctl/overlay.h"

namespace spdld::ctl {

struct Grid {
  Picture picture;
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  std::string tensor;              // whose rows are the cells
  std::string scale;               // how values became pixels, for people
  std::vector<std::string> drawn;  // fields that lie on the images: masks, boxes
};

// The batch's images in reading order, each with its row's number in the corner. It takes the first
// dense tensor with the shape of images: three dimensions of which the first or the last is 1 to 4,
// of uint8, uint16 or a float type; one of uint8 with one channel, which may be a mask, only where
// there is no other. Floats are stretched from their least to their largest value, over the whole
// batch. On the images lie masks of their size, tinted by class, and boxes in the colours of their
// labels. Throws Failure if no tensor looks like images.
Grid make_grid(const Preview& preview);

// Throws Failure.
void write_png(const Picture& picture, const std::string& path);

}  // namespace spdld::ctl

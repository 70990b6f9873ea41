// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/daemon.h"

namespace spdld::ctl {

struct Picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> rgb;  // width * height * 3
};

struct Grid {
  Picture picture;
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  std::string tensor;  // whose rows are the cells
  std::string scale;   // how values became pixels, for people
};

// The batch's images in reading order, each with its row's number in the corner. It takes the first
// dense tensor with the shape of images: three dimensions of which the first or the last is 1 or 3,
// of uint8 or a float type. Floats are stretched from their least to their largest value, over the
// whole batch. Throws Failure if no tensor looks like images.
Grid make_grid(const Preview& preview);

// Throws Failure.
void write_png(const Picture& picture, const std::string& path);

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/show/overlay.h"

namespace spdld::ctl {

// The rows of a batch as a picture of cells.
struct Grid {
  Picture picture;
  std::uint32_t columns = 0;
  std::uint32_t rows = 0;
  std::string tensor;              // whose rows are the cells
  std::string scale;               // how values became pixels, for people
  std::vector<std::string> drawn;  // fields that lie on the images: masks, boxes

  // An empty picture of cells of this size. Throws Failure if it were too large.
  void lay_out(std::uint32_t cell_width, std::uint32_t cell_height);
  // Cells are counted in reading order.
  Cell cell(std::uint32_t number) const;

 private:
  std::uint32_t cell_width_ = 0;
  std::uint32_t cell_height_ = 0;
};

// Throws Failure.
void write_png(const Picture& picture, const std::string& path);

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/show/packed_rows.h"

namespace spdld::ctl {

struct Picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> rgb;  // width * height * 3
};

// Where an image stands in a picture.
struct Cell {
  std::uint32_t left = 0;
  std::uint32_t top = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
};

// Draws the outlines of boxes, which are in pixels of the cell, in the colours of their labels.
// What lies outside of the cell is not drawn.
void draw_boxes(Picture& picture, const Cell& cell, const std::vector<BoxField::Box>& boxes);

// White digits on a black box at the cell's corner, each dot `zoom` pixels wide.
void draw_number(Picture& picture, const Cell& cell, std::uint32_t zoom, std::uint64_t number);

// Tints the pixels whose class, one byte each in `classes`, is not 0, in its colour.
void tint(Picture& picture, const Cell& cell, const char* classes);

}  // namespace spdld::ctl

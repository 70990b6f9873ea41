// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/overlay.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace spdld::ctl {
namespace {

using Color = std::array<std::uint8_t, 3>;

// Far from each other, and from most photographs.
constexpr std::array<Color, 8> kColors{{{230, 25, 75},
                                        {60, 180, 75},
                                        {255, 225, 25},
                                        {0, 130, 200},
                                        {245, 130, 48},
                                        {145, 30, 180},
                                        {70, 240, 240},
                                        {240, 50, 230}}};

const Color& color_of(std::int64_t label) {
  return kColors[static_cast<std::uint64_t>(label) % kColors.size()];
}

std::uint8_t* pixel(Picture& picture, const Cell& cell, std::uint32_t x, std::uint32_t y) {
  return &picture.rgb[(std::size_t{cell.top + y} * picture.width + cell.left + x) * 3];
}

// The pixel that an edge lies in, within `size` of them.
std::uint32_t at(float edge, std::uint32_t size) {
  return static_cast<std::uint32_t>(std::clamp(edge, 0.0F, static_cast<float>(size - 1)));
}

// 3 x 5 pixels each, a row of three bits at a time from the top.
constexpr std::array<std::array<std::uint8_t, 5>, 10> kDigits{{{7, 5, 5, 5, 7},
                                                               {2, 6, 2, 2, 7},
                                                               {7, 1, 7, 4, 7},
                                                               {7, 1, 7, 1, 7},
                                                               {5, 5, 7, 1, 1},
                                                               {7, 4, 7, 1, 7},
                                                               {7, 4, 7, 5, 7},
                                                               {7, 1, 2, 2, 2},
                                                               {7, 5, 7, 5, 7},
                                                               {7, 5, 7, 1, 7}}};

void paint(Picture& picture, std::uint32_t x, std::uint32_t y, std::uint8_t shade) {
  if (x >= picture.width || y >= picture.height) return;
  std::uint8_t* pixel = &picture.rgb[(std::size_t{y} * picture.width + x) * 3];
  pixel[0] = pixel[1] = pixel[2] = shade;
}

}  // namespace

void draw_boxes(Picture& picture, const Cell& cell, const std::vector<BoxField::Box>& boxes) {
  const std::uint32_t line = std::clamp(cell.height / 128, 1U, 4U);
  for (const BoxField::Box& box : boxes) {
    // Padding has no area; and what is no number is not less than another.
    if (!(box.left < box.right && box.top < box.bottom) || box.right < 0 || box.bottom < 0 ||
        box.left >= static_cast<float>(cell.width) || box.top >= static_cast<float>(cell.height))
      continue;
    const std::uint32_t left = at(box.left, cell.width);
    const std::uint32_t top = at(box.top, cell.height);
    // Half-open: the last pixel lies before the edge.
    const std::uint32_t right = std::max(left, at(std::ceil(box.right) - 1, cell.width));
    const std::uint32_t bottom = std::max(top, at(std::ceil(box.bottom) - 1, cell.height));
    const Color& color = color_of(box.label);
    for (std::uint32_t y = top; y <= bottom; ++y) {
      const bool across = y < top + line || y + line > bottom;
      for (std::uint32_t x = left; x <= right; ++x) {
        if (across || x < left + line || x + line > right)
          std::copy(color.begin(), color.end(), pixel(picture, cell, x, y));
      }
    }
  }
}

void tint(Picture& picture, const Cell& cell, const char* classes) {
  for (std::uint32_t y = 0; y < cell.height; ++y) {
    for (std::uint32_t x = 0; x < cell.width; ++x) {
      const auto number = static_cast<std::uint8_t>(*classes++);
      if (number == 0) continue;
      std::uint8_t* const rgb = pixel(picture, cell, x, y);
      // Class 1 has the first colour.
      const Color& color = color_of(number - 1);
      for (std::size_t i = 0; i < 3; ++i)
        rgb[i] = static_cast<std::uint8_t>((rgb[i] + color[i] + 1) / 2);
    }
  }
}

void draw_number(Picture& picture, const Cell& cell, std::uint32_t zoom, std::uint64_t number) {
  const std::string digits = std::to_string(number);
  const auto columns = static_cast<std::uint32_t>(digits.size() * 4 + 1);
  for (std::uint32_t y = 0; y < 7 * zoom; ++y) {
    for (std::uint32_t x = 0; x < columns * zoom; ++x) {
      const std::uint32_t row = y / zoom;
      const std::uint32_t column = x / zoom;
      bool lit = false;
      if (row >= 1 && row <= 5 && column % 4 != 0) {
        const auto digit = static_cast<std::size_t>(digits[column / 4] - '0');
        lit = (kDigits[digit][row - 1] >> (3 - column % 4) & 1) != 0;
      }
      paint(picture, cell.left + x, cell.top + y, lit ? 255 : 0);
    }
  }
}

}  // namespace spdld::ctl

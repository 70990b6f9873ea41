// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "media/image/row_converter.h"

namespace spdld::media::test {

// How a test wants its BMP. Pixels are a pure function of the seed.
struct BmpRecipe {
  int width = 19;
  int height = 13;
  int bits = 24;
  bool top_down = false;
  unsigned header_bytes = 40;
  std::vector<std::uint32_t> masks = {};  // red, green, blue, and in later headers alpha
  std::vector<PaletteColor> palette = {};
  bool run_length = false;
  std::uint64_t seed = 1;

  // The pixel as the file has it: a palette's number, or so many bits.
  std::uint32_t pixel(int x, int y) const;
};

std::vector<std::byte> make_bmp(const BmpRecipe& recipe);

// Some colours for pixels of so many bits, no two alike.
std::vector<PaletteColor> some_colors(int count);

}  // namespace spdld::media::test

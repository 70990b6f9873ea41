// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "media/image/row_converter.h"
#include "op/image.h"

namespace spdld::media::test {

// One image of a GIF. Its numbers are a pure function of the seed.
struct GifImage {
  Rect place = {0, 0, 19, 13};
  int bits = 4;
  bool interlaced = false;
  std::vector<PaletteColor> palette = {};  // as many as there are numbers, or none
  std::optional<int> transparent = std::nullopt;
  std::uint64_t seed = 1;
  int rows_left_out = 0;  // data that ends early, in an otherwise right file

  int number(int x, int y) const;  // in the image's own coordinates
};

struct GifRecipe {
  Size canvas = {19, 13};
  std::vector<PaletteColor> palette = {};
  std::vector<GifImage> images = {{}};
};

// Its codes are all of one length, so that they need no table.
std::vector<std::byte> make_gif(const GifRecipe& recipe);

}  // namespace spdld::media::test

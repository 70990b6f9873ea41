// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/format/bmp_maker.h"

#include <algorithm>

#include "base/rng.h"
#include "tests/unit/media/bytes/put_number.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

void put_line(const BmpRecipe& recipe, int y, Bytes& out) {
  const std::size_t begin = out.size();
  if (recipe.bits >= 8) {
    for (int x = 0; x < recipe.width; ++x) put_number(out, recipe.pixel(x, y), recipe.bits / 8);
  } else {
    unsigned held = 0;
    const int in_byte = 8 / recipe.bits;
    for (int x = 0; x < (recipe.width + in_byte - 1) / in_byte * in_byte; ++x) {
      held = held << recipe.bits | (x < recipe.width ? recipe.pixel(x, y) : 0);
      if ((x + 1) % in_byte == 0) put_number(out, held & 0xFF, 1);
    }
  }
  while ((out.size() - begin) % 4 != 0) put_number(out, 0, 1);
}

// In turns runs of one, and three or more pixels as they are; the last line has its end marked.
void put_runs(const BmpRecipe& recipe, int y, Bytes& out) {
  int x = 0;
  while (x < recipe.width) {
    const int left = recipe.width - x;
    if (x % 3 == 0 && left >= 4) {
      put_number(out, 0, 1);
      put_number(out, 3, 1);
      for (int i = 0; i < 3; ++i) {
        std::uint32_t pixel = recipe.pixel(x + i, y);
        if (recipe.bits == 4) pixel = pixel << 4 | (++i < 3 ? recipe.pixel(x + i, y) : 0);
        put_number(out, pixel, 1);
      }
      if (recipe.bits == 8) put_number(out, 0, 1);
      x += 3;
    } else {
      put_number(out, 1, 1);
      put_number(out, recipe.bits == 4 ? recipe.pixel(x, y) << 4 : recipe.pixel(x, y), 1);
      ++x;
    }
  }
  put_number(out, 0, 2);
}

Bytes pixel_data(const BmpRecipe& recipe) {
  Bytes data;
  for (int i = 0; i < recipe.height; ++i) {
    const int y = recipe.top_down ? i : recipe.height - 1 - i;
    if (recipe.run_length) {
      put_runs(recipe, y, data);
    } else {
      put_line(recipe, y, data);
    }
  }
  if (recipe.run_length) put_number(data, 0x0100, 2);
  return data;
}

}  // namespace

std::uint32_t BmpRecipe::pixel(int x, int y) const {
  const std::uint64_t key = mix64(seed, static_cast<std::uint64_t>(y * width + x));
  if (!palette.empty()) return static_cast<std::uint32_t>(key % palette.size());
  return static_cast<std::uint32_t>(bits == 32 ? key : key & ((1U << bits) - 1));
}

Bytes make_bmp(const BmpRecipe& recipe) {
  const bool os2 = recipe.header_bytes == 12;
  const bool masks = !recipe.masks.empty();
  const std::size_t mask_bytes = masks && recipe.header_bytes == 40 ? 12 : 0;
  const std::size_t palette_bytes = recipe.palette.size() * (os2 ? 3 : 4);
  const Bytes data = pixel_data(recipe);
  const auto offset =
      static_cast<std::uint32_t>(14 + recipe.header_bytes + mask_bytes + palette_bytes);
  Bytes bmp = {std::byte{'B'}, std::byte{'M'}};
  put_number(bmp, static_cast<std::uint32_t>(offset + data.size()), 4);
  put_number(bmp, 0, 4);
  put_number(bmp, offset, 4);
  put_number(bmp, recipe.header_bytes, 4);
  const int side = os2 ? 2 : 4;
  put_number(bmp, static_cast<std::uint32_t>(recipe.width), side);
  put_number(bmp, static_cast<std::uint32_t>(recipe.top_down ? -recipe.height : recipe.height),
             side);
  put_number(bmp, 1, 2);
  put_number(bmp, static_cast<std::uint32_t>(recipe.bits), 2);
  if (!os2) {
    put_number(bmp, recipe.run_length ? (recipe.bits == 8 ? 1 : 2) : masks ? 3 : 0, 4);
    put_number(bmp, static_cast<std::uint32_t>(data.size()), 4);
    put_number(bmp, 0, 4);
    put_number(bmp, 0, 4);
    put_number(bmp, static_cast<std::uint32_t>(recipe.palette.size()), 4);
    put_number(bmp, 0, 4);
    for (const std::uint32_t mask : recipe.masks) put_number(bmp, mask, 4);
    bmp.resize(14 + recipe.header_bytes + mask_bytes);
  }
  for (const PaletteColor& color : recipe.palette) {
    put_number(bmp, color.blue, 1);
    put_number(bmp, color.green, 1);
    put_number(bmp, color.red, 1);
    if (!os2) put_number(bmp, 0, 1);
  }
  bmp.insert(bmp.end(), data.begin(), data.end());
  return bmp;
}

std::vector<PaletteColor> some_colors(int count) {
  std::vector<PaletteColor> colors;
  for (int i = 0; i < count; ++i) {
    colors.push_back({static_cast<std::uint8_t>(i * 37 + 5), static_cast<std::uint8_t>(i * 91 + 7),
                      static_cast<std::uint8_t>(i * 151 + 11)});
  }
  return colors;
}

}  // namespace spdld::media::test

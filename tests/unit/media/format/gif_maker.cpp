// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/format/gif_maker.h"

#include <algorithm>
#include <string_view>

#include "base/rng.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

void put(Bytes& out, unsigned value) { out.push_back(static_cast<std::byte>(value & 0xFF)); }

void put_le16(Bytes& out, int value) {
  put(out, static_cast<unsigned>(value));
  put(out, static_cast<unsigned>(value) >> 8);
}

// Bit 7 and the size, as the flags of screen and image have them.
unsigned palette_flags(const std::vector<PaletteColor>& palette) {
  if (palette.empty()) return 0;
  return 0x80U | static_cast<unsigned>(__builtin_ctzll(palette.size()) - 1);
}

void put_palette(const std::vector<PaletteColor>& palette, Bytes& out) {
  for (const PaletteColor& color : palette) {
    put(out, color.red);
    put(out, color.green);
    put(out, color.blue);
  }
}

std::vector<int> row_order(const GifImage& image) {
  std::vector<int> order;
  const auto pass = [&](int first, int step) {
    for (int y = first; y < image.place.height; y += step) order.push_back(y);
  };
  if (image.interlaced) {
    pass(0, 8);
    pass(4, 8);
    pass(2, 4);
    pass(1, 2);
  } else {
    pass(0, 1);
  }
  order.resize(order.size() - static_cast<std::size_t>(image.rows_left_out));
  return order;
}

Bytes codes_of(const GifImage& image) {
  Bytes codes;
  unsigned held = 0;
  int bits = 0;
  const int smallest = std::max(image.bits, 2);
  const auto put_code = [&](unsigned code) {
    held |= code << bits;
    for (bits += smallest + 1; bits >= 8; bits -= 8, held >>= 8) put(codes, held);
  };
  const unsigned clear = 1U << smallest;
  unsigned since_clear = 0;
  put_code(clear);
  for (const int y : row_order(image)) {
    for (int x = 0; x < image.place.width; ++x) {
      if (++since_clear == clear - 1) {  // one more, and codes would grow
        put_code(clear);
        since_clear = 1;
      }
      put_code(static_cast<unsigned>(image.number(x, y)));
    }
  }
  put_code(clear + 1);
  if (bits > 0) put(codes, held);
  return codes;
}

void put_image(const GifImage& image, Bytes& out) {
  if (image.transparent) {
    for (const unsigned byte : {0x21U, 0xF9U, 4U, 1U, 0U, 0U}) put(out, byte);
    put(out, static_cast<unsigned>(*image.transparent));
    put(out, 0);
  }
  put(out, 0x2C);
  for (const int number : {image.place.x, image.place.y, image.place.width, image.place.height})
    put_le16(out, number);
  put(out, palette_flags(image.palette) | (image.interlaced ? 0x40U : 0U));
  put_palette(image.palette, out);
  put(out, static_cast<unsigned>(std::max(image.bits, 2)));
  const Bytes codes = codes_of(image);
  for (std::size_t at = 0; at < codes.size(); at += 255) {
    const std::size_t size = std::min<std::size_t>(codes.size() - at, 255);
    put(out, static_cast<unsigned>(size));
    const auto begin = codes.begin() + static_cast<std::ptrdiff_t>(at);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
  }
  put(out, 0);
}

}  // namespace

int GifImage::number(int x, int y) const {
  const std::uint64_t key = mix64(seed, static_cast<std::uint64_t>(y * place.width + x));
  return static_cast<int>(key & ((1U << bits) - 1));
}

Bytes make_gif(const GifRecipe& recipe) {
  Bytes gif;
  for (const char c : std::string_view("GIF89a")) put(gif, static_cast<unsigned char>(c));
  put_le16(gif, recipe.canvas.width);
  put_le16(gif, recipe.canvas.height);
  put(gif, palette_flags(recipe.palette));
  put(gif, 3);  // the background, which nobody heeds
  put(gif, 0);
  put_palette(recipe.palette, gif);
  for (const GifImage& image : recipe.images) put_image(image, gif);
  put(gif, 0x3B);
  return gif;
}

}  // namespace spdld::media::test

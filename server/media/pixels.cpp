// SPDX-License-Identifier: Apache-2.0
#include "media/pixels.h"

namespace spdld::media {
namespace {

// ink * key / 255, rounded.
constexpr unsigned multiply_255(unsigned ink, unsigned key) {
  const unsigned product = ink * key + 128;
  return ((product >> 8) + product) >> 8;
}

}  // namespace

void inverted_cmyk_row(const std::uint8_t* cmyk, int width, ColorMode mode, std::uint8_t* out) {
  for (int x = 0; x < width; ++x, cmyk += 4) {
    const unsigned key = cmyk[3];  // inverted: how much light the black ink leaves
    const unsigned red = key - multiply_255(255U - cmyk[0], key);
    const unsigned green = key - multiply_255(255U - cmyk[1], key);
    const unsigned blue = key - multiply_255(255U - cmyk[2], key);
    if (mode == ColorMode::kGray) {
      *out++ = luma(red, green, blue);
    } else {
      *out++ = static_cast<std::uint8_t>(red);
      *out++ = static_cast<std::uint8_t>(green);
      *out++ = static_cast<std::uint8_t>(blue);
    }
  }
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdld::media {

enum class ColorMode { kRgb, kGray };

constexpr int channels_of(ColorMode mode) { return mode == ColorMode::kRgb ? 3 : 1; }

// ITU-R 601-2 luma in 16-bit fixed point, rounded: the integers of Pillow and of libjpeg.
constexpr std::uint8_t luma(unsigned red, unsigned green, unsigned blue) {
  return static_cast<std::uint8_t>((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

// One row of a CMYK JPEG, whose samples are stored inverted (Adobe's way, which every reader
// assumes), to `mode`. The rounding is Pillow's; gray goes by way of RGB, as it does there.
void inverted_cmyk_row(const std::uint8_t* cmyk, int width, ColorMode mode, std::uint8_t* out);

}  // namespace spdld::media

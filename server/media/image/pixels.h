// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spdld::media {

// ITU-R 601-2 luma in 16-bit fixed point, rounded: the integers of Pillow and of libjpeg.
constexpr std::uint8_t luma(unsigned red, unsigned green, unsigned blue) {
  return static_cast<std::uint8_t>((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

// a * b / 255, rounded as Pillow does where it brings CMYK to RGB.
constexpr unsigned multiply_255(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace spdld::media {

// What an image's pixels are in its file.
struct StoredPixels {
  enum class Color : std::uint8_t { kGray, kRgb, kPalette, kCmyk };
  // kKey: some colour, or some colours of the palette, are transparent. kChannel: a sample a pixel.
  enum class Alpha : std::uint8_t { kNone, kKey, kChannel };

  Color color = Color::kRgb;
  int bits = 8;  // of a sample, or of a palette's numbers
  Alpha alpha = Alpha::kNone;
};

std::string to_text(const StoredPixels& pixels);  // "RGB with alpha, 8 bits"

enum class ColorMode : std::uint8_t { kRgb, kGray };

// What decode_image makes of every image.
struct ImageMode {
  ColorMode color = ColorMode::kRgb;
  int channels = 3;
  int bytes_per_value = 1;

  static ImageMode of(ColorMode color);

  int pixel_bytes() const { return channels * bytes_per_value; }
  bool has_alpha() const { return channels == 2 || channels == 4; }
};

}  // namespace spdld::media

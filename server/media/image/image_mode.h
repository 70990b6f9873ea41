// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "op/tensor_spec.h"

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

enum class ColorMode : std::uint8_t {
  kRgb,
  kGray,
  kRgba,
  kGray16,
  kIndex,      // numbers of a palette, or gray, as they are stored
  kUnchanged,  // what the images are, as was declared
};

// What decode_image makes of every image. A value.
struct ImageMode {
  ColorMode color = ColorMode::kRgb;
  int channels = 3;  // 2 and 4 have alpha, the last one
  int bytes_per_value = 1;

  static ImageMode of(ColorMode color);  // other than kUnchanged
  static ImageMode index(DType dtype);
  static ImageMode unchanged(int channels, DType dtype);

  DType dtype() const { return bytes_per_value == 2 ? DType::kUInt16 : DType::kUInt8; }
  int pixel_bytes() const { return channels * bytes_per_value; }
  bool has_alpha() const { return channels == 2 || channels == 4; }

  // kInvalidArgument when the mode makes nothing of such an image: says what it is.
  Status accept(const StoredPixels& pixels) const;
};

}  // namespace spdld::media

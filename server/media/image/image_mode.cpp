// SPDX-License-Identifier: Apache-2.0
#include "media/image/image_mode.h"

#include "base/check.h"
#include "base/text/counted.h"

namespace spdld::media {
namespace {

using Color = StoredPixels::Color;
using Alpha = StoredPixels::Alpha;

std::string values_text(int channels, DType dtype) {
  return counted(static_cast<std::uint64_t>(channels), "channel") + " of " +
         std::string(dtype_name(dtype));
}

// Colours of a palette are RGB, and what is transparent has alpha.
int channels_of(const StoredPixels& pixels) {
  return (pixels.color == Color::kGray ? 1 : 3) + (pixels.alpha == Alpha::kNone ? 0 : 1);
}

DType dtype_of(const StoredPixels& pixels) {
  return pixels.bits > 8 ? DType::kUInt16 : DType::kUInt8;
}

Status refuse(const std::string& reads, const StoredPixels& pixels) {
  return {Code::kInvalidArgument,
          "decode_image with " + reads + ", and this image is " + to_text(pixels)};
}

}  // namespace

std::string to_text(const StoredPixels& pixels) {
  std::string text;
  switch (pixels.color) {
    case Color::kGray: text = "gray"; break;
    case Color::kRgb: text = "RGB"; break;
    case Color::kPalette: text = "RGB by a palette"; break;
    case Color::kCmyk: text = "CMYK"; break;
  }
  if (pixels.alpha != Alpha::kNone) text += " with alpha";
  return text + ", " + counted(static_cast<std::uint64_t>(pixels.bits), "bit");
}

ImageMode ImageMode::of(ColorMode color) {
  switch (color) {
    case ColorMode::kRgb: return {.color = color, .channels = 3};
    case ColorMode::kRgba: return {.color = color, .channels = 4};
    case ColorMode::kGray16: return {.color = color, .channels = 1, .bytes_per_value = 2};
    case ColorMode::kGray:
    case ColorMode::kIndex: return {.color = color, .channels = 1};
    case ColorMode::kUnchanged: break;
  }
  SPDLD_CHECK(false);
}

ImageMode ImageMode::index(DType dtype) {
  ImageMode mode = of(ColorMode::kIndex);
  mode.bytes_per_value = static_cast<int>(wire::dtype_bytes(dtype));
  return mode;
}

ImageMode ImageMode::unchanged(int channels, DType dtype) {
  SPDLD_CHECK(channels >= 1 && channels <= 4);
  return {.color = ColorMode::kUnchanged,
          .channels = channels,
          .bytes_per_value = static_cast<int>(wire::dtype_bytes(dtype))};
}

Status ImageMode::accept(const StoredPixels& pixels) const {
  switch (color) {
    case ColorMode::kRgb:
    case ColorMode::kGray:
    case ColorMode::kRgba: return {};
    case ColorMode::kGray16:
      if (pixels.color == Color::kGray) return {};
      return refuse("'mode: gray16' reads gray alone", pixels);
    case ColorMode::kIndex:
      if (pixels.color == Color::kPalette ||
          (pixels.color == Color::kGray && pixels.alpha != Alpha::kChannel)) {
        if (pixels.bits <= 8 * bytes_per_value) return {};
        return refuse(
            "'mode: index' reads numbers of up to 8 bits, and with 'dtype: uint16' of up "
            "to 16",
            pixels);
      }
      return refuse("'mode: index' reads palettes, and gray without alpha", pixels);
    case ColorMode::kUnchanged: break;
  }
  if (pixels.color == Color::kCmyk)
    return refuse("'mode: unchanged' reads gray and RGB; 'mode: rgb' converts others", pixels);
  if (channels_of(pixels) == channels && dtype_of(pixels) == dtype()) return {};
  return {Code::kInvalidArgument,
          "decode_image with 'mode: unchanged' reads " + values_text(channels, dtype()) +
              ", as declared, and this image has " +
              values_text(channels_of(pixels), dtype_of(pixels)) + ": " + to_text(pixels)};
}

}  // namespace spdld::media

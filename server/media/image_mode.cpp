// SPDX-License-Identifier: Apache-2.0
#include "media/image_mode.h"

namespace spdld::media {

std::string to_text(const StoredPixels& pixels) {
  std::string text;
  switch (pixels.color) {
    case StoredPixels::Color::kGray: text = "gray"; break;
    case StoredPixels::Color::kRgb: text = "RGB"; break;
    case StoredPixels::Color::kPalette: text = "RGB by a palette"; break;
    case StoredPixels::Color::kCmyk: text = "CMYK"; break;
  }
  if (pixels.alpha != StoredPixels::Alpha::kNone) text += " with alpha";
  return text + ", " + std::to_string(pixels.bits) + (pixels.bits == 1 ? " bit" : " bits");
}

ImageMode ImageMode::of(ColorMode color) {
  switch (color) {
    case ColorMode::kRgb: return {.color = color, .channels = 3};
    case ColorMode::kGray: return {.color = color, .channels = 1};
  }
  return {};
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "op/image.h"

namespace spdld::media {

// What the chunks of a whole WebP tell without decoding it.
struct WebpLayout {
  Size canvas;
  Rect image;  // where it lies on the canvas: all of it, but for the first frame of an animation
  bool lossless = false;
  bool alpha = false;               // of the file: that of a frame counts for nothing without it
  std::span<const std::byte> data;  // what libwebp decodes
  std::span<const std::byte> exif;  // the TIFF block, or empty
};

// kDataLoss when the file is truncated or breaks the format.
Result<WebpLayout> survey_webp(std::span<const std::byte> bytes);

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "media/image/image_mode.h"
#include "media/image/row_converter.h"
#include "op/image.h"

namespace spdld::media {

// What the blocks of a whole GIF tell of its first image without decoding it.
struct GifLayout {
  Size canvas;  // at least what the image covers
  Rect image;   // where it lies on the canvas
  bool interlaced = false;
  Palette palette;
  int palette_bits = 8;
  bool gray = false;  // its numbers are grays: there is no palette, or none that says otherwise
  std::optional<std::uint8_t> transparent = std::nullopt;  // a number
  std::span<const std::byte> data;  // of the image: how its codes begin, and the blocks of them

  StoredPixels stored() const;
};

// kDataLoss when the file is truncated (in a later image, too), breaks the format, or claims more
// pixels than its data can hold.
Result<GifLayout> survey_gif(std::span<const std::byte> bytes);

}  // namespace spdld::media

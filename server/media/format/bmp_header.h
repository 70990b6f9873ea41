// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "media/image/image_mode.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Which of a pixel's bits are which colour.
struct BmpMasks {
  std::uint32_t red = 0;
  std::uint32_t green = 0;
  std::uint32_t blue = 0;

  friend bool operator==(const BmpMasks&, const BmpMasks&) = default;
};

// What the headers of a whole BMP tell without decoding it.
struct BmpLayout {
  enum class Coding : std::uint8_t { kPlain, kRle8, kRle4 };
  // How a pixel's 16 or 32 bits are shared out, in its numbers' order from the highest bits on.
  enum class Fields : std::uint8_t { kNone, k555, k565, k444, kBgrx, kXbgr, kRgbx, kXrgb };

  std::uint32_t width = 0;
  std::uint32_t height = 0;
  bool top_down = false;
  unsigned bits = 0;  // of a pixel: 1, 4, 8, 16, 24, 32
  Coding coding = Coding::kPlain;
  Fields fields = Fields::kNone;
  bool alpha = false;               // its fields have some
  Palette palette;                  // of 1, 4 and 8 bits
  bool gray = false;                // the palette's colours are the grays that its numbers would be
  std::span<const std::byte> data;  // if run-length coded: without the end of the picture

  bool has_palette() const { return bits <= 8; }
  // From one line of uncompressed data to the next.
  std::uint64_t line_bytes() const { return (std::uint64_t{width} * bits + 31) / 32 * 4; }
  StoredPixels stored() const;
  BmpMasks masks() const;
};

// kDataLoss when the file is truncated or breaks the format, kInvalidArgument for a kind of BMP
// that is not read. The size that the file header names is not looked at: many writers leave it
// wrong.
Result<BmpLayout> survey_bmp(std::span<const std::byte> bytes);

}  // namespace spdld::media

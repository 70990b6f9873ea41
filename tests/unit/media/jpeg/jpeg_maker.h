// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spdld::media::test {

// How a test wants its JPEG.
struct JpegRecipe {
  enum class Kind { kYcc, kGray, kRgb, kCmyk, kYcck };

  int width = 64;
  int height = 48;
  Kind kind = Kind::kYcc;
  int luma_h = 1;  // sampling factors of the first component (and of the K of YCCK); others 1x1
  int luma_v = 1;
  int quality = 90;
  bool progressive = false;
  bool interleaved = true;  // false: a scan a component
  bool arithmetic = false;
  int restart_interval = 0;          // in MCUs
  std::vector<std::byte> exif = {};  // a TIFF block for APP1
  std::uint64_t seed = 1;            // of the pixels: a gradient under noise
  int progressive_scans = 0;         // if set: only the first so many of the standard script
  int repeated_scans = 0;            // if set: a refinement script of about so many scans
};

std::vector<std::byte> make_jpeg(const JpegRecipe& recipe);

inline constexpr std::size_t kBlockSize = 64;
// Coefficients in zigzag order, before they are multiplied by the quantizer.
using JpegBlock = std::array<std::int16_t, kBlockSize>;

// Where in a block, row by row, the i-th coefficient in zigzag order is.
std::size_t natural_of_zigzag(std::size_t i);

// A gray image of these blocks, `across` of them in each row; `quantizer` is in zigzag order.
std::vector<std::byte> make_jpeg_of(const std::vector<JpegBlock>& blocks, std::size_t across,
                                    const std::array<std::uint8_t, kBlockSize>& quantizer);

// What the bare library makes of a JPEG: its default settings, row by row, warnings let pass.
// `components` is 1, 3 or 4 (CMYK as stored).
std::vector<std::uint8_t> bare_decode(const std::vector<std::byte>& jpeg, int components);

}  // namespace spdld::media::test

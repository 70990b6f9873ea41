// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace spdld::media::test {

// How a test wants its AVIF. Pixels are a gradient under noise, a function of the seed.
struct AvifRecipe {
  int width = 61;
  int height = 43;
  int depth = 8;
  int chroma = 444;  // or 422, 420; 400 is gray
  bool alpha = false;
  bool full_range = true;
  std::optional<int> irot = std::nullopt;  // quarter turns to the left
  std::optional<int> imir = std::nullopt;  // 0 exchanges top and bottom, 1 left and right
  std::vector<std::byte> exif = {};        // a TIFF block
  int columns = 1;                         // of a grid; each cell has the size above
  int images = 1;                          // of a sequence
  std::uint64_t seed = 1;
};

std::vector<std::byte> make_avif(const AvifRecipe& recipe);

// What the bare library makes of a file: interleaved RGB, or RGBA, of 8 or 16 bits.
std::vector<std::uint8_t> bare_decode_avif(const std::vector<std::byte>& avif, int channels,
                                           int bits);

}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "op/image.h"

namespace spdld::media::test {

// How a test wants its TIFF. Samples are a pure function of the seed.
struct TiffRecipe {
  int width = 37;
  int height = 29;
  unsigned photometric = 2;  // 0 and 1 gray, 2 RGB, 3 palette, 5 CMYK
  unsigned samples = 3;      // the second one of gray is alpha
  unsigned bits = 8;
  unsigned compression = 1;  // 1 none, 5 LZW, 8 deflate, 32773 PackBits
  int rows_per_strip = 0;    // 0: one strip
  Size tile = {};            // none: strips
  bool planar = false;
  bool differences = false;
  bool bits_reversed = false;
  bool big_endian = false;
  bool big_tiff = false;
  std::vector<std::byte> strip = {};                         // if set: the data of the only strip
  std::map<unsigned, std::vector<std::uint32_t>> tags = {};  // besides; no values: left out
  std::uint64_t seed = 1;

  unsigned sample(int x, int y, unsigned sample) const;
};

std::vector<std::byte> make_tiff_file(const TiffRecipe& recipe);

// Fax codes of `rows` rows of 16 pixels, the left half of them white and the right half black: of
// T.4 with marked ends of lines, or of T.6.
std::vector<std::byte> fax_codes(int rows, bool t6);

// Tag 320 for numbers of so many bits: all reds, all greens, all blues, of 16 bits.
std::vector<std::uint32_t> some_color_map(unsigned bits);

}  // namespace spdld::media::test

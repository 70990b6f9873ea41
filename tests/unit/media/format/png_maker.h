// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace spdld::media::test {

// How a test wants its PNG. Samples are those of `sample`, at the file's own depth.
struct PngRecipe {
  int width = 19;
  int height = 13;
  int color_type = 2;  // 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA
  int bit_depth = 8;
  bool interlaced = false;
  std::vector<std::uint8_t> palette = {};  // RGB triples
  std::vector<unsigned> transparent = {};  // for tRNS: alphas of colours, or the samples of one
  std::vector<std::byte> exif = {};        // a TIFF block for eXIf
  std::uint64_t seed = 1;
  int rows_left_out = 0;  // image data that ends early, in an otherwise right file

  int samples() const;
  // A pure function of the seed.
  unsigned sample(int x, int y, int channel) const;
};

std::vector<std::byte> make_png(const PngRecipe& recipe);

// Puts the right checksum behind every chunk of a damaged file, as far as it still has chunks.
void mend_checksums(std::vector<std::byte>& png);

// Signature, then chunks: for files that are wrong on purpose.
class PngWriter {
 public:
  PngWriter();
  PngWriter& chunk(std::string_view name, const std::vector<std::byte>& body);
  PngWriter& header(std::uint32_t width, std::uint32_t height, int bit_depth, int color_type,
                    int interlace = 0);
  // IDAT of these bytes, deflated.
  PngWriter& data(const std::vector<std::byte>& raw);
  std::vector<std::byte> end();  // with IEND

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace spdld::media::test

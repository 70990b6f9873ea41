// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "media/format/tiff_directory.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// What the first directory of a whole TIFF tells of its page without decoding it: what the pixels
// are, and how they lie in chunks, which are strips or tiles. A value; the file must outlive it.
class TiffLayout {
 public:
  enum class Color : std::uint8_t { kGray, kRgb, kPalette, kCmyk };
  enum class Alpha : std::uint8_t { kNone, kStraight, kPremultiplied };
  enum class Compression : std::uint16_t {
    kNone = 1,
    kCcittRle = 2,
    kCcittT4 = 3,
    kCcittT6 = 4,
    kLzw = 5,
    kDeflate = 8,
    kOldDeflate = 32946,
    kPackBits = 32773,
  };

  // kDataLoss when the file is truncated, breaks the format, or claims more pixels than its data
  // can hold; kResourceExhausted for more pixels than the limit; kInvalidArgument for a kind of
  // TIFF that is not read.
  static Result<TiffLayout> survey(std::span<const std::byte> bytes, const ImageLimits& limits);

  std::uint32_t width() const { return width_; }
  std::uint32_t height() const { return height_; }
  int orientation() const { return orientation_; }  // EXIF's number
  StoredPixels stored() const;

  Color color() const { return color_; }
  Alpha alpha() const { return alpha_; }
  bool white_is_zero() const { return white_is_zero_; }
  unsigned bits() const { return bits_; }        // of a sample: 1, 2, 4, 8, 16
  unsigned samples() const { return samples_; }  // a pixel, those without meaning too
  bool big_endian() const { return directory_.reader().big_endian(); }
  Palette palette() const;

  Compression compression() const { return compression_; }
  bool bits_reversed() const { return bits_reversed_; }  // in each byte of compressed data
  std::uint32_t t4_options() const { return t4_options_; }
  bool differences() const { return differences_; }  // samples are those to the pixel on the left

  // Chunks lie row by row, all of one plane before those of the next.
  bool tiled() const { return tiled_; }
  unsigned planes() const { return planes_; }  // 1: a chunk holds whole pixels
  std::uint32_t chunk_width() const { return chunk_width_; }
  std::uint32_t chunk_height() const { return chunk_height_; }
  std::uint32_t chunks_across() const { return (width_ - 1) / chunk_width_ + 1; }
  std::uint32_t chunks_down() const { return (height_ - 1) / chunk_height_ + 1; }
  std::uint64_t chunks() const { return std::uint64_t{chunks_across()} * chunks_down() * planes_; }
  unsigned chunk_samples() const { return samples_ / planes_; }  // of a pixel in a chunk
  std::uint64_t chunk_row_bytes() const {
    return (std::uint64_t{chunk_width_} * chunk_samples() * bits_ + 7) / 8;
  }
  // Rows in the chunks of row `down`: a last strip ends with the image, a tile does not.
  std::uint32_t chunk_rows(std::uint32_t down) const;
  std::span<const std::byte> chunk(std::uint64_t index) const;
  std::uint64_t largest_chunk_bytes() const { return largest_chunk_bytes_; }  // of data

 private:
  explicit TiffLayout(const TiffDirectory& directory) : directory_(directory) {}

  Status read_size();
  Status read_color();
  Status read_samples(unsigned colors);
  Status read_compression();
  Status read_chunks();
  Status check_chunk(std::uint64_t index) const;
  bool can_hold(std::uint64_t data_bytes, std::uint32_t rows) const;
  TiffTag offsets() const { return tiled_ ? TiffTag::kTileOffsets : TiffTag::kStripOffsets; }
  TiffTag byte_counts() const {
    return tiled_ ? TiffTag::kTileByteCounts : TiffTag::kStripByteCounts;
  }

  TiffDirectory directory_;
  std::uint32_t width_ = 0;
  std::uint32_t height_ = 0;
  int orientation_ = 1;
  Color color_ = Color::kGray;
  Alpha alpha_ = Alpha::kNone;
  bool white_is_zero_ = false;
  unsigned bits_ = 1;
  unsigned samples_ = 1;
  Compression compression_ = Compression::kNone;
  bool bits_reversed_ = false;
  std::uint32_t t4_options_ = 0;
  bool differences_ = false;
  bool tiled_ = false;
  unsigned planes_ = 1;
  std::uint32_t chunk_width_ = 0;
  std::uint32_t chunk_height_ = 0;
  std::uint64_t largest_chunk_bytes_ = 0;
};

}  // namespace spdld::media

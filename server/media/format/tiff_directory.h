// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "media/image/tiff_reader.h"

namespace spdld::media {

// The tags that pixels depend on, in the order of their numbers.
enum class TiffTag : std::uint16_t {
  kImageWidth = 256,
  kImageLength = 257,
  kBitsPerSample = 258,
  kCompression = 259,
  kPhotometric = 262,
  kFillOrder = 266,
  kStripOffsets = 273,
  kOrientation = 274,
  kSamplesPerPixel = 277,
  kRowsPerStrip = 278,
  kStripByteCounts = 279,
  kPlanarConfiguration = 284,
  kT4Options = 292,
  kPredictor = 317,
  kColorMap = 320,
  kTileWidth = 322,
  kTileLength = 323,
  kTileOffsets = 324,
  kTileByteCounts = 325,
  kExtraSamples = 338,
  kSampleFormat = 339,
};

// The first directory of a TIFF or BigTIFF file: what its tags say, as whole numbers. A value; the
// file must outlive it. Tags that are not listed above, or whose values are no whole numbers, are
// as if they were not there.
class TiffDirectory {
 public:
  // kDataLoss when the file ends before the directory or the values of a listed tag do.
  static Result<TiffDirectory> read(std::span<const std::byte> bytes);

  bool has(TiffTag tag) const { return entry(tag).count > 0; }
  std::uint64_t count(TiffTag tag) const { return entry(tag).count; }
  // Value `i` of count().
  std::uint64_t value(TiffTag tag, std::uint64_t i) const;
  // The first value, or `otherwise`.
  std::uint64_t value_or(TiffTag tag, std::uint64_t otherwise) const;

  const TiffReader& reader() const { return reader_; }

 private:
  struct Entry {
    std::uint64_t count = 0;  // 0: the tag is not there
    std::uint64_t offset = 0;
    std::size_t value_bytes = 0;
  };
  static constexpr std::size_t kTags = 21;

  explicit TiffDirectory(const TiffReader& reader) : reader_(reader) {}
  Status read_entries(std::uint64_t offset, bool big);
  static std::size_t slot(TiffTag tag);
  const Entry& entry(TiffTag tag) const { return entries_[slot(tag)]; }

  TiffReader reader_;
  std::array<Entry, kTags> entries_;
};

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/format/tiff_directory.h"

#include <algorithm>

#include "base/check.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

constexpr std::array kListed = {
    TiffTag::kImageWidth,     TiffTag::kImageLength,     TiffTag::kBitsPerSample,
    TiffTag::kCompression,    TiffTag::kPhotometric,     TiffTag::kFillOrder,
    TiffTag::kStripOffsets,   TiffTag::kOrientation,     TiffTag::kSamplesPerPixel,
    TiffTag::kRowsPerStrip,   TiffTag::kStripByteCounts, TiffTag::kPlanarConfiguration,
    TiffTag::kT4Options,      TiffTag::kPredictor,       TiffTag::kColorMap,
    TiffTag::kTileWidth,      TiffTag::kTileLength,      TiffTag::kTileOffsets,
    TiffTag::kTileByteCounts, TiffTag::kExtraSamples,    TiffTag::kSampleFormat};

// Of one value; 0: no whole number.
std::size_t type_bytes(std::uint64_t type) {
  switch (type) {
    case 1: return 1;   // BYTE
    case 3: return 2;   // SHORT
    case 4: return 4;   // LONG
    case 16: return 8;  // LONG8, of BigTIFF
    default: return 0;
  }
}

}  // namespace

std::size_t TiffDirectory::slot(TiffTag tag) {
  static_assert(kListed.size() == kTags);
  return static_cast<std::size_t>(std::find(kListed.begin(), kListed.end(), tag) - kListed.begin());
}

Result<TiffDirectory> TiffDirectory::read(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return truncated("TIFF", "whole header", bytes.size());
  TiffDirectory directory(TiffReader(bytes, bytes[0] == std::byte{'M'}));
  const TiffReader& reader = directory.reader_;
  constexpr std::uint64_t kBigTiff = 43;
  if (reader.number(2, 2) != kBigTiff) {
    SPDLD_TRY(directory.read_entries(reader.number(4, 4), false));
    return directory;
  }
  if (bytes.size() < 16) return truncated("TIFF", "whole header", bytes.size());
  if (reader.number(4, 2) != 8)
    return unsupported("TIFF", "offsets of " + std::to_string(reader.number(4, 2)) + " bytes");
  SPDLD_TRY(directory.read_entries(reader.number(8, 8), true));
  return directory;
}

Status TiffDirectory::read_entries(std::uint64_t offset, bool big) {
  const std::size_t file_bytes = reader_.bytes().size();
  const std::size_t number_bytes = big ? 8 : 4;
  const std::size_t count_bytes = big ? 8 : 2;
  const std::size_t entry_bytes = 4 + 2 * number_bytes;
  if (!reader_.holds(offset, count_bytes)) return truncated("TIFF", "directory", file_bytes);
  const std::uint64_t entries = reader_.number(offset, count_bytes);
  if (entries > file_bytes / entry_bytes ||
      !reader_.holds(offset + count_bytes, entries * entry_bytes))
    return truncated("TIFF", "whole directory", file_bytes);
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t at = offset + count_bytes + i * entry_bytes;
    const auto tag = static_cast<TiffTag>(reader_.number(at, 2));
    const std::size_t listed = slot(tag);
    const std::size_t value_bytes = type_bytes(reader_.number(at + 2, 2));
    if (listed == kTags || value_bytes == 0) continue;
    Entry entry{.count = reader_.number(at + 4, number_bytes),
                .offset = at + 4 + number_bytes,
                .value_bytes = value_bytes};
    if (entry.count > file_bytes / value_bytes)
      return truncated("TIFF", "whole directory", file_bytes);
    if (entry.count * value_bytes > number_bytes)
      entry.offset = reader_.number(entry.offset, number_bytes);
    if (!reader_.holds(entry.offset, entry.count * value_bytes))
      return truncated("TIFF", "whole directory", file_bytes);
    entries_[listed] = entry;
  }
  return {};
}

std::uint64_t TiffDirectory::value(TiffTag tag, std::uint64_t i) const {
  const Entry& found = entry(tag);
  SPDLD_CHECK(i < found.count);
  return reader_.number(found.offset + i * found.value_bytes, found.value_bytes);
}

std::uint64_t TiffDirectory::value_or(TiffTag tag, std::uint64_t otherwise) const {
  return has(tag) ? value(tag, 0) : otherwise;
}

}  // namespace spdld::media

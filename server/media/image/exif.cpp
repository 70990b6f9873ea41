// SPDX-License-Identifier: Apache-2.0
#include "media/image/exif.h"

#include <cstdint>

#include "media/image/tiff_reader.h"

namespace spdld::media {
namespace {

constexpr std::size_t kTiffHeaderBytes = 8;
constexpr std::size_t kEntryBytes = 12;
constexpr std::uint32_t kOrientationTag = 0x0112;
constexpr std::uint32_t kShort = 3;
constexpr std::uint32_t kLong = 4;

}  // namespace

std::optional<int> find_exif_orientation(std::span<const std::byte> tiff) {
  if (tiff.size() < kTiffHeaderBytes || tiff[0] != tiff[1]) return std::nullopt;
  const bool big_endian = tiff[0] == std::byte{'M'};
  if (!big_endian && tiff[0] != std::byte{'I'}) return std::nullopt;

  const TiffReader reader(tiff, big_endian);
  if (reader.number(2, 2) != 42) return std::nullopt;
  const std::size_t directory = reader.number(4, 4);
  if (!reader.holds(directory, 2)) return std::nullopt;
  const std::size_t entries = reader.number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (!reader.holds(entry, kEntryBytes)) return std::nullopt;
    if (reader.number(entry, 2) != kOrientationTag) continue;
    const std::uint64_t type = reader.number(entry + 2, 2);
    if (reader.number(entry + 4, 4) != 1 || (type != kShort && type != kLong)) return 1;
    const std::uint64_t value = reader.number(entry + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return std::nullopt;
}

int exif_orientation(std::span<const std::byte> tiff) {
  return find_exif_orientation(tiff).value_or(1);
}

}  // namespace spdld::media

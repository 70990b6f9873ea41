// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/seek_index.h"

#include "base/check.h"

namespace spdld::media {

std::uint64_t SeekIndex::Entry::packed() const {
  std::uint64_t packed = std::uint64_t{byte} << 3 | bit;
  for (const std::int16_t each : dc)
    packed = packed << 12 | (static_cast<std::uint64_t>(each) & 0xFFF);
  return packed;
}

SeekIndex::Entry SeekIndex::Entry::unpacked(std::uint64_t packed) {
  const auto dc = [&](int shift) {
    return static_cast<std::int16_t>(static_cast<std::int16_t>(packed >> shift << 4) >> 4);
  };
  return {.byte = static_cast<std::uint32_t>(packed >> 39),
          .bit = static_cast<std::uint32_t>(packed >> 36) & 7,
          .dc = {dc(24), dc(12), dc(0)}};
}

SeekIndex::SeekIndex(const SeekGrid& grid, std::span<const std::uint64_t> entries)
    : grid_(grid), entries_(entries) {
  SPDLD_CHECK(entries.size() == grid.entries());
}

SeekIndex::Entry SeekIndex::at(int row, int column) const {
  const std::size_t in_row = column == grid_.mcus_across
                                 ? grid_.row_entries()
                                 : static_cast<std::size_t>(column / grid_.step);
  return Entry::unpacked(entries_[static_cast<std::size_t>(row) * grid_.row_entries() + in_row]);
}

}  // namespace spdld::media

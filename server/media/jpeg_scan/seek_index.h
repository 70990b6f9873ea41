// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spdld::media {

// How many MCUs a scan has, and how many of them apart the entries of its index are.
struct SeekGrid {
  int mcus_across = 0;
  int mcus_down = 0;
  int step = 8;

  std::size_t row_entries() const {
    return static_cast<std::size_t>((mcus_across + step - 1) / step);
  }
  // With the one behind the scan's end.
  std::size_t entries() const { return row_entries() * static_cast<std::size_t>(mcus_down) + 1; }
};

// Where decoding of a baseline scan may begin: at the first MCU of each row, and in a row at each
// multiple of `step`. Only a scan that was found sound to its end has one. A view, of which each
// entry is one number: 24 bits of the byte, 3 of the bit, and 12 for each coefficient.
class SeekIndex {
 public:
  // The state of a decoder before an MCU.
  struct Entry {
    std::uint32_t byte = 0;               // of the scan, with its stuffed zeros
    std::uint32_t bit = 0;                // of that byte, from the highest
    std::array<std::int16_t, 3> dc = {};  // the last DC coefficient of each component

    std::uint64_t packed() const;
    static Entry unpacked(std::uint64_t packed);
  };
  static constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of a scan
  // Whether an entry has room for such a DC coefficient.
  static constexpr bool can_tell(std::int32_t dc) { return dc >= -2048 && dc <= 2047; }

  SeekIndex(const SeekGrid& grid, std::span<const std::uint64_t> entries);

  int step() const { return grid_.step; }
  // Before MCU `column` of `row`, which is a multiple of step() or the end of the row.
  Entry at(int row, int column) const;
  bool has(int column) const { return column % grid_.step == 0 || column == grid_.mcus_across; }

 private:
  SeekGrid grid_;
  std::span<const std::uint64_t> entries_;
};

}  // namespace spdld::media

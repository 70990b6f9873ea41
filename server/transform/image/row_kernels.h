// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The loops over uint8 pixels, each compiled for every instruction set that Highway knows for this
// machine's architecture and chosen at run time. Integers only: the bytes are the same on all.
namespace spdld::transform {

// A weight of kWeightBits is split in two 16-bit digits so that it fits the multiply-and-add of
// pairs: weight = high * 256 + low, 0 <= low < 256. A pair holds the digits of two taps, the first
// one in the lower half.
struct WeightPair {
  std::uint32_t high;
  std::uint32_t low;

  static WeightPair of(std::int32_t first, std::int32_t second) {
    return {join(first >> 8, second >> 8), join(first & 255, second & 255)};
  }

 private:
  static std::uint32_t join(std::int32_t a, std::int32_t b) {
    return (static_cast<std::uint32_t>(a) & 0xffffU) | (static_cast<std::uint32_t>(b) << 16);
  }
};

inline constexpr std::size_t kColumnGroup = 16;  // columns are made by so many at once
inline constexpr std::size_t kRowSlack = 64;     // bytes that may be read and written past a row

// How a row is resized. The tables hold a multiple of kColumnGroup columns, the last ones of no
// meaning but with valid offsets.
struct ColumnTable {
  const std::int32_t* offsets = nullptr;  // first tap of each column, in bytes
  const std::uint32_t* high = nullptr;    // [pair][column]: WeightPair::high
  const std::uint32_t* low = nullptr;
  std::size_t columns = 0;  // from one pair to the next
  int taps = 0;
};

// How far past a column's offset it reads.
std::size_t column_reach_bytes(int taps, int channels);

// Where a row of pixels goes: channel after channel (plane_stride apart), or interleaved
// (plane_stride 0). kRowSlack bytes past each plane's last column may be overwritten.
struct RowTarget {
  std::uint8_t* data = nullptr;
  std::size_t plane_stride = 0;
};

// Makes columns [begin, end), multiples of kColumnGroup. column_reach_bytes() past each column's
// offset must be readable.
void resize_row(const std::uint8_t* source, const ColumnTable& table, std::size_t begin,
                std::size_t end, int channels, const RowTarget& target);

// Copies `width` interleaved pixels into the target's layout, mirrored if `flip`. Reads and writes
// nothing but them.
void arrange_row(const std::uint8_t* source, std::size_t width, int channels, bool flip,
                 const RowTarget& target);

// out[x] = weighted sum of rows[.][x] for x in [0, bytes): weights hold `pairs` pairs for twice as
// many rows. kRowSlack bytes past each row must be readable; nothing but `out` is written.
void blend_rows(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                std::size_t bytes, std::uint8_t* out);

}  // namespace spdld::transform

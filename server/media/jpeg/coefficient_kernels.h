// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "media/jpeg_scan/scan_tables.h"

// Quantized blocks, packed so that one is unpacked without a branch for each coefficient. A block
// is
//
//   1 byte    how many bytes it has, with this one
//   2 bytes   its first coefficient
//   8 bytes   which of the others are not zero: bit 8 * row + column. Bit 0: wide ones have 2 bytes
//   then      these in 4 bits each, row by row, the low half of each byte first: -8 to 7, and 0 for
//             a wide one
//   then      the wide ones, in 1 byte each or in 2
//
// Numbers of 2 and 8 bytes are as this machine has them: no block leaves it.
namespace spdld::media {

// Where the parts of a block are, and the most that it takes.
inline constexpr std::size_t kFirstAt = 1;
inline constexpr std::size_t kMaskAt = 3;
inline constexpr std::size_t kPackedHead = 11;
inline constexpr std::size_t kMostPackedBlock = kPackedHead + 32 + 2 * 63;
// The functions below may read so much behind the last block.
inline constexpr std::size_t kPackedSlack = kMostPackedBlock + 16;

// `block` is in zigzag order. Returns where the next one begins.
std::uint8_t* pack_block(const std::int16_t* block, std::uint8_t* to);

// Both return where the next block begins; null: these bytes are no blocks. Nothing behind `end`
// is looked at but kPackedSlack bytes, whatever they say.
const std::uint8_t* skip_blocks(const std::uint8_t* from, const std::uint8_t* end,
                                std::size_t count);
// `to` gets 64 coefficients of each, row by row.
const std::uint8_t* unpack_blocks(const std::uint8_t* from, const std::uint8_t* end,
                                  std::size_t count, std::int16_t* to);

}  // namespace spdld::media

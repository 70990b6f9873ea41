// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The loops over the coefficients and samples of baseline JPEG, each compiled for every instruction
// set that Highway knows for this machine's architecture and chosen at run time. The bytes are
// those of libjpeg-turbo's SIMD code (accurate integer DCT, fancy upsampling), on all of them.
namespace spdld::media {

// Kernels may write this many bytes behind what they are asked for, and read as many.
inline constexpr std::size_t kJpegSlack = 192;

// Where in zigzag order, which files have, each coefficient of a block is; row by row.
inline constexpr std::array<std::uint8_t, 64> kNaturalToZigzag = {
    0,  1,  5,  6,  14, 15, 27, 28, 2,  4,  7,  13, 16, 26, 29, 42, 3,  8,  12, 17, 25, 30,
    41, 43, 9,  11, 18, 24, 31, 40, 44, 53, 10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38,
    46, 51, 55, 60, 21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63};

// What coefficients are multiplied by, row by row.
using JpegMultipliers = std::array<std::int16_t, 64>;

// How the 64 coefficients of a block follow each other: as in files, or row by row.
enum class BlockOrder { kZigzag, kRows };

// Blocks of one component that lie side by side in the image. In memory they are of MCUs that are
// one behind the other, with `columns` of these blocks in each.
struct BlockRow {
  const std::int16_t* first = nullptr;
  BlockOrder order = BlockOrder::kZigzag;
  std::size_t count = 0;
  std::size_t columns = 1;
  std::size_t mcu_step = 64;  // coefficients from one MCU to the next

  const std::int16_t* block(std::size_t i) const {
    return first + i / columns * mcu_step + i % columns * 64;
  }
};

// Dequantizes and transforms blocks: 8 rows of 8 * count samples, `stride` bytes apart.
void inverse_dct(const BlockRow& blocks, const JpegMultipliers& multipliers, std::uint8_t* out,
                 std::ptrdiff_t stride);

// Chroma of half the width: 2 * count samples. in[-1] and in[count] are read: at the edge of an
// image these repeat the sample beside them.
void upsample_h2v1(const std::uint8_t* in, std::size_t count, std::uint8_t* out);
// Of half the width and height: one row, from the chroma row that is nearer to it and the other
// one.
void upsample_h2v2(const std::uint8_t* near, const std::uint8_t* far, std::size_t count,
                   std::uint8_t* out);

// Interleaved pixels of 3 bytes.
void ycc_to_rgb(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                std::size_t count, std::uint8_t* out);

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "transform/image/row_kernels.h"

// The two loops that take most of an image's time, for x86-64 machines with the byte permutations
// and dot products of AVX-512 (VBMI, VNNI), which Highway has no words for. Their bytes are those
// of the loops in row_kernels.h.
namespace spdld::transform::avx512 {

// Whether this machine has them; as with row_kernels.h, tests may say that it has not. Asks the
// processor each time, which a virtual machine makes slow: keep the answer.
bool available();

inline constexpr std::size_t kWindowBytes = 128;  // what one permutation picks from

struct alignas(64) WindowVector {
  std::uint8_t bytes[64];
};

// A weight is split in signed digits to the base 256, the lowest one first.
inline constexpr std::size_t kDigits = 3;

// How a row of three channels is resized, kColumnGroup columns at a time. Each group reads a window
// of the row from its base on; further taps, four by four, are the same pattern 12 bytes on.
// Vector i of a group's four is for columns i, 4 + i, 8 + i and 12 + i.
struct WindowTable {
  const std::int32_t* bases = nullptr;     // [group]
  const WindowVector* patterns = nullptr;  // [group][i]: which bytes of the window
  const WindowVector* weights = nullptr;   // [group][quad][i][digit]
  std::size_t groups = 0;
  int quads = 0;  // of taps
};

// Fills in one group's patterns and weights: column c's first tap lies from[c] bytes into the
// window, and its 4 * quads weights at weights[c].
void plan_group(const std::int32_t* const weights[kColumnGroup],
                const std::int32_t from[kColumnGroup], int quads, WindowVector* patterns,
                WindowVector* digits);

// Reads nothing outside [source, source + row_bytes).
void resize_row(const std::uint8_t* source, std::size_t row_bytes, const WindowTable& table,
                const RowTarget& target);

void blend_rows(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                std::size_t bytes, std::uint8_t* out);

}  // namespace spdld::transform::avx512

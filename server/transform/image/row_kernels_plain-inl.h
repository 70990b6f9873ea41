// SPDX-License-Identifier: Apache-2.0
// Included by row_kernels.cpp once for each instruction set.
#if defined(SPDLD_TRANSFORM_ROW_KERNELS_PLAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_TRANSFORM_ROW_KERNELS_PLAIN_INL_H_
#undef SPDLD_TRANSFORM_ROW_KERNELS_PLAIN_INL_H_
#else
#define SPDLD_TRANSFORM_ROW_KERNELS_PLAIN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "transform/image/axis_filter.h"
#include "transform/image/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE

// Plain loops, for machines without the shuffles that those of row_kernels-inl.h are made of.
inline std::int32_t digit(std::uint32_t pair, std::size_t tap) {
  return static_cast<std::int16_t>(pair >> (tap % 2 * 16));
}

inline std::uint8_t clamp_to_byte(std::int32_t sum) {
  sum >>= kWeightBits;
  return static_cast<std::uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

inline void resize_row(const std::uint8_t* source, const ColumnTable& table, std::size_t begin,
                       std::size_t end, int channels, const RowTarget& target) {
  const auto step = static_cast<std::size_t>(channels);
  for (std::size_t x = begin; x < end; ++x) {
    const std::uint8_t* const from = source + table.offsets[x];
    for (std::size_t c = 0; c < step; ++c) {
      std::int32_t sum = 1 << (kWeightBits - 1);
      for (std::size_t tap = 0; tap < static_cast<std::size_t>(table.taps); ++tap) {
        const std::size_t pair = tap / 2 * table.columns + x;
        sum += (digit(table.high[pair], tap) * 256 + digit(table.low[pair], tap)) *
               from[tap * step + c];
      }
      std::uint8_t* const to = target.plane_stride == 0 ? target.data + x * step + c
                                                        : target.data + c * target.plane_stride + x;
      *to = clamp_to_byte(sum);
    }
  }
}

inline void arrange_row(const std::uint8_t* source, std::size_t width, int channels, bool flip,
                        const RowTarget& target) {
  const auto step = static_cast<std::size_t>(channels);
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t to = flip ? width - 1 - x : x;
    for (std::size_t c = 0; c < step; ++c) {
      const std::size_t at =
          target.plane_stride == 0 ? to * step + c : c * target.plane_stride + to;
      target.data[at] = source[x * step + c];
    }
  }
}

inline void blend_rows(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                       std::size_t bytes, std::uint8_t* out) {
  for (std::size_t x = 0; x < bytes; ++x) {
    std::int32_t sum = 1 << (kWeightBits - 1);
    for (std::size_t tap = 0; tap < static_cast<std::size_t>(pairs) * 2; ++tap) {
      const WeightPair& pair = weights[tap / 2];
      sum += (digit(pair.high, tap) * 256 + digit(pair.low, tap)) * rows[tap][x];
    }
    out[x] = clamp_to_byte(sum);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

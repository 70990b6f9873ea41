// SPDX-License-Identifier: Apache-2.0
#include "transform/image/row_kernels.h"

#include <algorithm>
#include <cstring>

#include "transform/image/axis_filter.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/image/row_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "transform/image/row_kernels-inl.h"
#include "transform/image/row_kernels_plain-inl.h"

#if HWY_ONCE
namespace spdld::transform {

HWY_EXPORT(resize_row);
HWY_EXPORT(arrange_row);
HWY_EXPORT(blend_rows);

std::size_t column_reach_bytes(int taps, int channels) {
  // Three channels: 16 bytes hold five taps, of which four are used, and the fifth if it is the
  // last. One channel: four bytes, four taps.
  const auto loads =
      static_cast<std::size_t>(taps % 4 == 1 && taps > 4 ? taps / 4 : (taps + 3) / 4);
  if (channels == 3) return (loads - 1) * 12 + 16;
  return static_cast<std::size_t>((taps + 3) / 4) * 4;
}

void resize_row(const std::uint8_t* source, const ColumnTable& table, std::size_t begin,
                std::size_t end, int channels, const RowTarget& target) {
  HWY_DYNAMIC_DISPATCH(resize_row)(source, table, begin, end, channels, target);
}

void arrange_row(const std::uint8_t* source, std::size_t width, int channels, bool flip,
                 const RowTarget& target) {
  HWY_DYNAMIC_DISPATCH(arrange_row)(source, width, channels, flip, target);
}

void blend_rows(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                std::size_t bytes, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(blend_rows)(rows, weights, pairs, bytes, out);
}

}  // namespace spdld::transform
#endif  // HWY_ONCE

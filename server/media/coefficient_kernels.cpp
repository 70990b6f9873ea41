// SPDX-License-Identifier: Apache-2.0
#include "media/coefficient_kernels.h"

#include <bit>
#include <cstring>

#include "media/jpeg_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/coefficient_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "media/coefficient_kernels-inl.h"

#if HWY_ONCE
namespace spdld::media {
namespace {

HWY_EXPORT(unpack_blocks);

constexpr int kLeastNarrow = -8, kMostNarrow = 7;

}  // namespace

std::uint8_t* pack_block(const std::int16_t* block, std::uint8_t* to) {
  std::int16_t rows[kBlock];
  std::uint64_t there = 0;
  bool any_huge = false;
  for (std::size_t i = 1; i < kBlock; ++i) {
    rows[i] = block[kNaturalToZigzag[i]];
    there |= std::uint64_t{rows[i] != 0} << i;
    any_huge |= rows[i] < INT8_MIN || rows[i] > INT8_MAX;
  }
  std::uint8_t* const narrow = to + kPackedHead;
  std::uint8_t* wide = narrow + (std::popcount(there) + 1) / 2;
  std::memset(narrow, 0, static_cast<std::size_t>(wide - narrow));
  std::size_t count = 0;
  for (std::uint64_t left = there; left != 0; left &= left - 1, ++count) {
    const std::int16_t value = rows[std::countr_zero(left)];
    if (value >= kLeastNarrow && value <= kMostNarrow) {
      narrow[count / 2] |= static_cast<std::uint8_t>((value & 15) << count % 2 * 4);
    } else if (any_huge) {
      std::memcpy(wide, &value, sizeof value);
      wide += sizeof value;
    } else {
      *wide++ = static_cast<std::uint8_t>(value);
    }
  }
  there |= std::uint64_t{any_huge};
  to[0] = static_cast<std::uint8_t>(wide - to);
  std::memcpy(to + kFirstAt, block, sizeof *block);
  std::memcpy(to + kMaskAt, &there, sizeof there);
  return wide;
}

const std::uint8_t* skip_blocks(const std::uint8_t* from, const std::uint8_t* end,
                                std::size_t count) {
  for (; count > 0; --count) {
    if (from >= end || from[0] < kPackedHead || from[0] > end - from) return nullptr;
    from += from[0];
  }
  return from;
}

const std::uint8_t* unpack_blocks(const std::uint8_t* from, const std::uint8_t* end,
                                  std::size_t count, std::int16_t* to) {
  return HWY_DYNAMIC_DISPATCH(unpack_blocks)(from, end, count, to);
}

}  // namespace spdld::media
#endif  // HWY_ONCE

// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/coefficient_kernels.h"

#include <array>
#include <bit>
#include <cstring>

#include "media/jpeg/jpeg_kernels.h"

#define HWY_WANT_AVX3_DL  // the AVX-512 of Ice Lake and Zen 4, too
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/jpeg/coefficient_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "media/jpeg/coefficient_kernels-inl.h"

#if HWY_ONCE
namespace spdld::media {
namespace {

HWY_EXPORT(find_nonzero);
HWY_EXPORT(unpack_blocks);

constexpr std::array<std::uint8_t, kBlock> kZigzagToNatural = [] {
  std::array<std::uint8_t, kBlock> natural{};
  for (std::size_t i = 0; i < kBlock; ++i)
    natural[kNaturalToZigzag[i]] = static_cast<std::uint8_t>(i);
  return natural;
}();

constexpr int kLeastNarrow = -8, kMostNarrow = 7;

}  // namespace

std::uint8_t* pack_block(const std::int16_t* block, std::uint8_t* to) {
  std::int16_t rows[kBlock];  // of those that are there
  std::uint64_t there = 0;
  bool any_huge = false;
  const std::uint64_t others = HWY_DYNAMIC_DISPATCH(find_nonzero)(block) & ~std::uint64_t{1};
  for (std::uint64_t left = others; left != 0; left &= left - 1) {
    const auto at = static_cast<std::size_t>(std::countr_zero(left));
    const std::size_t natural = kZigzagToNatural[at];
    rows[natural] = block[at];
    there |= std::uint64_t{1} << natural;
    any_huge |= block[at] < INT8_MIN || block[at] > INT8_MAX;
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

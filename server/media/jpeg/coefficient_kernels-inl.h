// SPDX-License-Identifier: Apache-2.0
// Included by coefficient_kernels.cpp once for each instruction set.
#if defined(SPDLD_MEDIA_COEFFICIENT_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_COEFFICIENT_KERNELS_INL_H_
#undef SPDLD_MEDIA_COEFFICIENT_KERNELS_INL_H_
#else
#define SPDLD_MEDIA_COEFFICIENT_KERNELS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "media/jpeg/coefficient_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

template <typename Number>
HWY_INLINE Number number_at(const std::uint8_t* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

#if HWY_TARGET <= HWY_AVX3_DL
namespace hn = hwy::HWY_NAMESPACE;

// A vector holds half a block, which one instruction spreads.
using DHalf = hn::FixedTag<std::int16_t, kBlock / 2>;
using VHalf = hn::Vec<DHalf>;

// Which coefficients are not zero.
inline std::uint64_t find_nonzero(const std::int16_t* block) {
  const DHalf d;
  const auto half = [&](std::size_t at) {
    return std::uint64_t{hn::Ne(hn::LoadU(d, block + at), hn::Zero(d)).raw};
  };
  return half(0) | half(kBlock / 2) << kBlock / 2;
}

// The values that come next, to the lanes of `set`; the other lanes are 0.
HWY_INLINE VHalf spread(VHalf next, std::uint64_t set) {
  return VHalf{_mm512_maskz_expand_epi16(static_cast<__mmask32>(set), next.raw)};
}

// The next 32 wide coefficients.
HWY_INLINE VHalf load_wide(const std::int8_t* from) {
  return hn::PromoteTo(DHalf(), hn::LoadU(hn::Rebind<std::int8_t, DHalf>(), from));
}
HWY_INLINE VHalf load_wide(const std::int16_t* from) { return hn::LoadU(DHalf(), from); }

// 32 numbers of 4 bits, of which those behind `count` mean nothing, with wide ones in place of
// zeros. `wide` becomes where the wide ones go on.
template <typename Wide>
HWY_INLINE VHalf unpack_values(const std::uint8_t* narrow, int count, const std::uint8_t*& wide) {
  const DHalf d;
  const hn::Repartition<std::uint32_t, DHalf> pairs;
  const auto bytes =
      hn::PromoteTo(pairs, hn::LoadU(hn::Rebind<std::uint8_t, decltype(pairs)>(), narrow));
  // The lowest 4 bits of each lane are one half of a byte then.
  const auto apart = hn::BitCast(d, hn::Or(bytes, hn::ShiftLeft<12>(bytes)));
  const VHalf numbers = hn::ShiftRight<12>(hn::ShiftLeft<12>(apart));
  const std::uint32_t are_wide =
      _bzhi_u32(hn::Eq(numbers, hn::Zero(d)).raw, static_cast<unsigned>(count));
  const VHalf more = load_wide(reinterpret_cast<const Wide*>(wide));
  wide += static_cast<std::size_t>(std::popcount(are_wide)) * sizeof(Wide);
  return hn::Or(numbers, spread(more, are_wide));
}

template <typename Wide>
HWY_INLINE const std::uint8_t* unpack_all(const std::uint8_t* narrow, std::uint64_t there,
                                          std::int16_t* to) {
  const DHalf d;
  const int count = std::popcount(there);
  const auto upper = static_cast<std::int16_t>(std::popcount(there & UINT32_MAX));
  const std::uint8_t* wide = narrow + (count + 1) / 2;
  const VHalf first = unpack_values<Wide>(narrow, count, wide);
  hn::StoreU(spread(first, there), d, to);
  const VHalf lanes = hn::Iota(d, upper);
  VHalf rest{_mm512_permutexvar_epi16(lanes.raw, first.raw)};
  if (HWY_UNLIKELY(count > 32)) {
    const VHalf second = unpack_values<Wide>(narrow + 16, count - 32, wide);
    rest = VHalf{_mm512_permutex2var_epi16(first.raw, lanes.raw, second.raw)};
  }
  hn::StoreU(spread(rest, there >> 32), d, to + kBlock / 2);
  return wide;
}

// Returns the block's end, which it may not agree with.
HWY_INLINE const std::uint8_t* unpack(const std::uint8_t* from, std::int16_t* to) {
  const auto mask = number_at<std::uint64_t>(from + kMaskAt);
  const std::uint64_t there = mask & ~std::uint64_t{1};
  const bool has_huge = (mask & 1) != 0;
  const std::uint8_t* const end = HWY_LIKELY(!has_huge)
                                      ? unpack_all<std::int8_t>(from + kPackedHead, there, to)
                                      : unpack_all<std::int16_t>(from + kPackedHead, there, to);
  to[0] = number_at<std::int16_t>(from + kFirstAt);
  return end;
}

inline const std::uint8_t* unpack_blocks(const std::uint8_t* from, const std::uint8_t* end,
                                         std::size_t count, std::int16_t* to) {
  for (; count > 0; --count, to += kBlock) {
    if (from >= end) return nullptr;
    // By its length, so that the next block need not wait for this one.
    const std::uint8_t* const next = from + from[0];
    if (unpack(from, to) != next || next > end) return nullptr;
    from = next;
  }
  return from;
}

#else

// A block while it is unpacked: its coefficients that are not zero, in their order.
struct Packed {
  std::uint64_t there = 0;  // which they are, the first coefficient always
  std::int16_t values[1 + kBlock + 16];
};

#if HWY_TARGET == HWY_SCALAR

// Which coefficients are not zero.
inline std::uint64_t find_nonzero(const std::int16_t* block) {
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < kBlock; ++i) found |= std::uint64_t{block[i] != 0} << i;
  return found;
}

// 32 numbers of 4 bits, of which those behind `count` mean nothing, with wide ones in place of
// zeros. Returns where the wide ones go on.
template <typename Wide>
const std::uint8_t* unpack_values(const std::uint8_t* narrow, int count, const std::uint8_t* wide,
                                  std::int16_t* to) {
  for (int i = 0; i < std::min(count, 32); ++i) {
    const int bits = narrow[i / 2] >> i % 2 * 4 & 15;
    to[i] = static_cast<std::int16_t>((bits ^ 8) - 8);
    if (bits != 0) continue;
    to[i] = number_at<Wide>(wide);
    wide += sizeof(Wide);
  }
  return wide;
}

inline void spread(const Packed& block, std::int16_t* to) {
  const std::int16_t* next = block.values;
  for (std::size_t i = 0; i < kBlock; ++i)
    to[i] = (block.there >> i & 1) != 0 ? *next++ : std::int16_t{0};
}

#else
namespace hn = hwy::HWY_NAMESPACE;

using DBytes = hn::FixedTag<std::uint8_t, 16>;
using DValues = hn::FixedTag<std::int16_t, 8>;
using VValues = hn::Vec<DValues>;

// Which coefficients are not zero.
inline std::uint64_t find_nonzero(const std::int16_t* block) {
  const DValues values;
  std::uint8_t zeros[kBlock / 8 + 8] = {};
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < kBlock / 8; ++i)
    hn::StoreMaskBits(values, hn::Eq(hn::LoadU(values, block + 8 * i), hn::Zero(values)),
                      zeros + i);
  return ~number_at<std::uint64_t>(zeros);
}

// For each set of lanes: which of the values that come next goes to each of them, as a shuffle of
// bytes.
struct Spreads {
  alignas(16) std::uint8_t bytes[256][16] = {};
};

constexpr Spreads make_spreads() {
  Spreads spreads;
  for (int set = 0; set < 256; ++set) {
    int next = 0;
    for (int lane = 0; lane < 8; ++lane) {
      const bool is_there = (set >> lane & 1) != 0;
      spreads.bytes[set][2 * lane] = is_there ? static_cast<std::uint8_t>(2 * next) : 0x80;
      spreads.bytes[set][2 * lane + 1] = is_there ? static_cast<std::uint8_t>(2 * next + 1) : 0x80;
      next += is_there ? 1 : 0;
    }
  }
  return spreads;
}

constexpr Spreads kSpreads = make_spreads();

// The values that come next, to the lanes of `set`; the other lanes are 0.
HWY_INLINE VValues spread(VValues next, std::uint64_t set) {
  return hn::BitCast(DValues(), hn::TableLookupBytesOr0(hn::BitCast(DBytes(), next),
                                                        hn::Load(DBytes(), kSpreads.bytes[set])));
}

// The lowest `count` bits of these, which is less than 64.
HWY_INLINE std::uint32_t lowest(std::uint32_t bits, int count) {
  return bits & static_cast<std::uint32_t>((std::uint64_t{1} << count) - 1);
}

// The next 8 wide coefficients.
HWY_INLINE VValues load_wide(const std::int8_t* from) {
  return hn::PromoteTo(DValues(), hn::LoadU(hn::Rebind<std::int8_t, DValues>(), from));
}
HWY_INLINE VValues load_wide(const std::int16_t* from) { return hn::LoadU(DValues(), from); }

// 32 numbers of 4 bits, of which those behind `count` mean nothing, with wide ones in place of
// zeros. Returns where the wide ones go on.
template <typename Wide>
HWY_INLINE const std::uint8_t* unpack_values(const std::uint8_t* narrow, int count,
                                             const std::uint8_t* wide, std::int16_t* to) {
  const DBytes bytes;
  const DValues values;
  const auto packed = hn::LoadU(bytes, narrow);
  const auto upper = hn::Set(bytes, 0xF0);
  const auto zero = hn::Zero(bytes);
  // The low half of each byte, moved to its upper one.
  const auto low =
      hn::And(hn::BitCast(bytes, hn::ShiftLeft<4>(hn::BitCast(values, packed))), upper);
  const auto high = hn::And(packed, upper);
  const auto first = hn::InterleaveLower(bytes, low, high);
  const auto second = hn::InterleaveUpper(bytes, low, high);
  std::uint8_t masks[8] = {};
  hn::StoreMaskBits(bytes, hn::Eq(first, zero), masks);
  hn::StoreMaskBits(bytes, hn::Eq(second, zero), masks + 2);
  const std::uint32_t are_wide = lowest(number_at<std::uint32_t>(masks), count);
  const auto put = [&](auto number, int i) {
    const int before = std::popcount(are_wide & ((std::uint32_t{1} << 8 * i) - 1));
    const auto more = load_wide(reinterpret_cast<const Wide*>(wide) + before);
    hn::StoreU(hn::Or(hn::ShiftRight<12>(hn::BitCast(values, number)),
                      spread(more, are_wide >> 8 * i & 0xFF)),
               values, to + 8 * i);
  };
  put(hn::InterleaveLower(bytes, zero, first), 0);
  put(hn::InterleaveUpper(bytes, zero, first), 1);
  put(hn::InterleaveLower(bytes, zero, second), 2);
  put(hn::InterleaveUpper(bytes, zero, second), 3);
  return wide + static_cast<std::size_t>(std::popcount(are_wide)) * sizeof(Wide);
}

HWY_INLINE void spread(const Packed& block, std::int16_t* to) {
  HWY_UNROLL(8)
  for (int row = 0; row < 8; ++row) {
    const int before = std::popcount(block.there & ((std::uint64_t{1} << 8 * row) - 1));
    const auto next = hn::LoadU(DValues(), block.values + before);
    hn::StoreU(spread(next, block.there >> 8 * row & 0xFF), DValues(), to + 8 * row);
  }
}

#endif  // HWY_SCALAR

template <typename Wide>
HWY_INLINE const std::uint8_t* unpack_all(const std::uint8_t* narrow, int count, std::int16_t* to) {
  const std::uint8_t* wide = narrow + (count + 1) / 2;
  wide = unpack_values<Wide>(narrow, count, wide, to);
  if (HWY_UNLIKELY(count > 32)) wide = unpack_values<Wide>(narrow + 16, count - 32, wide, to + 32);
  return wide;
}

// Returns the block's end, which it may not agree with.
HWY_INLINE const std::uint8_t* unpack(const std::uint8_t* from, Packed& block) {
  const auto mask = number_at<std::uint64_t>(from + kMaskAt);
  block.there = mask | 1;
  block.values[0] = number_at<std::int16_t>(from + kFirstAt);
  const int count = std::popcount(mask >> 1);
  const bool has_huge = (mask & 1) != 0;
  return HWY_LIKELY(!has_huge)
             ? unpack_all<std::int8_t>(from + kPackedHead, count, block.values + 1)
             : unpack_all<std::int16_t>(from + kPackedHead, count, block.values + 1);
}

// Values are spread when those of some more blocks are in memory: a load of what has just been
// stored in other pieces waits.
inline const std::uint8_t* unpack_blocks(const std::uint8_t* from, const std::uint8_t* end,
                                         std::size_t count, std::int16_t* to) {
  constexpr std::size_t kAtOnce = 8;
  Packed blocks[kAtOnce];
  while (count > 0) {
    const std::size_t some = std::min(count, kAtOnce);
    for (std::size_t i = 0; i < some; ++i) {
      if (from >= end) return nullptr;
      // By its length, so that the next block need not wait for this one.
      const std::uint8_t* const next = from + from[0];
      if (unpack(from, blocks[i]) != next || next > end) return nullptr;
      from = next;
    }
    for (std::size_t i = 0; i < some; ++i, to += kBlock) spread(blocks[i], to);
    count -= some;
  }
  return from;
}

#endif  // HWY_TARGET <= HWY_AVX3_DL

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_COEFFICIENT_KERNELS_INL_H_

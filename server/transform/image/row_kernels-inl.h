// SPDX-License-Identifier: Apache-2.0
// Included by row_kernels.cpp once for each instruction set that has byte shuffles within
// fixed-size vectors; the others have row_kernels_plain-inl.h.
#if defined(SPDLD_TRANSFORM_ROW_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_TRANSFORM_ROW_KERNELS_INL_H_
#undef SPDLD_TRANSFORM_ROW_KERNELS_INL_H_
#else
#define SPDLD_TRANSFORM_ROW_KERNELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transform/image/axis_filter.h"
#include "transform/image/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if !(HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE)

inline constexpr std::uint8_t kNone = 0x80;  // in a shuffle: 0 instead of a byte
inline constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

using D8 = hn::ScalableTag<std::uint8_t>;
using D16 = hn::ScalableTag<std::int16_t>;
using D32 = hn::ScalableTag<std::int32_t>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
inline constexpr std::size_t kBytes = hn::MaxLanes(D8());
inline constexpr std::size_t kBlocks = kBytes / 16;

// Sums of products being made: the high and the low digits' apart until finish().
struct Sums {
  V32 high;
  V32 low;
};

HWY_INLINE Sums first_sums() { return {hn::Zero(D32()), hn::Set(D32(), kHalf)}; }

HWY_INLINE V32 add_products(V16 pixels, V16 weights, V32 sum) {
  V32 unused = hn::Zero(D32());
  return hn::ReorderWidenMulAccumulate(D32(), pixels, weights, sum, unused);
}

HWY_INLINE V32 finish(const Sums& sums) {
  return hn::ShiftRight<kWeightBits>(hn::Add(hn::ShiftLeft<8>(sums.high), sums.low));
}

// Lanes of a, b, c, d of each 16-byte block, one after the other, clamped to bytes.
HWY_INLINE V8 pack(V32 a, V32 b, V32 c, V32 d) {
  const V16 ab = hn::ReorderDemote2To(D16(), a, b);
  const V16 cd = hn::ReorderDemote2To(D16(), c, d);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return V8{_mm512_packus_epi16(ab.raw, cd.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V8{_mm256_packus_epi16(ab.raw, cd.raw)};
#else
  const hn::Half<D8> half;
  return hn::Combine(D8(), hn::DemoteTo(half, cd), hn::DemoteTo(half, ab));
#endif
}

HWY_INLINE V8 every_block(const std::uint8_t* bytes) { return hn::LoadDup128(D8(), bytes); }

// ------------------------------ resize_row

// Block j of the result holds 16 bytes from the offset of column 4 * j.
template <class D>
HWY_INLINE hn::Vec<D> load_pixels(D d, const std::uint8_t* source, const std::int32_t* offsets) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::LoadU(d, source + offsets[0]);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_pixels(half, source, offsets + hn::MaxLanes(D()) / 8),
                       load_pixels(half, source, offsets));
  }
}

// One pair of taps (already in 16-bit lanes) of columns x + kI, x + 4 + kI, ...
template <int kI>
HWY_INLINE Sums add_pair(const Sums& sums, V8 taps, const ColumnTable& table, std::size_t x,
                         int pair) {
  const std::size_t at = static_cast<std::size_t>(pair) * table.columns + x;
  const hn::RebindToUnsigned<D32> du32;
  const auto high =
      hn::BitCast(D16(), hn::Broadcast<kI>(BitCast(D32(), hn::LoadU(du32, table.high + at))));
  const auto low =
      hn::BitCast(D16(), hn::Broadcast<kI>(BitCast(D32(), hn::LoadU(du32, table.low + at))));
  const V16 pixels = hn::BitCast(D16(), taps);
  return {add_products(pixels, high, sums.high), add_products(pixels, low, sums.low)};
}

struct Shuffles {
  V8 taps01;
  V8 taps23;
  V8 tap4;
};

// The rgb sums of columns x + kI, x + 4 + kI, ...: one 16-byte block each. kTaps 0: any number.
template <int kTaps, int kI>
HWY_INLINE V32 sum_rgb(const std::uint8_t* source, const ColumnTable& table, std::size_t x,
                       const Shuffles& shuffles) {
  const int taps = kTaps == 0 ? table.taps : kTaps;
  const int pairs = (taps + 1) / 2;
  const bool odd_last = taps > 4 && taps % 4 == 1;
  Sums sums = first_sums();
  int pair = 0;
  while (pair < pairs) {
    const V8 pixels = load_pixels(D8(), source, table.offsets + x + kI);
    source += 12;
    sums = add_pair<kI>(sums, hn::TableLookupBytes(pixels, shuffles.taps01), table, x, pair++);
    if (pair == pairs) break;
    sums = add_pair<kI>(sums, hn::TableLookupBytes(pixels, shuffles.taps23), table, x, pair++);
    if (odd_last && pair + 1 == pairs) {
      sums = add_pair<kI>(sums, hn::TableLookupBytes(pixels, shuffles.tap4), table, x, pair++);
    }
  }
  return finish(sums);
}

// Stores 4 * kBlocks columns, given as r g b x bytes, channel after channel.
HWY_INLINE void store_planes(V8 rgbx, std::uint8_t* out, std::size_t stride) {
  alignas(16) static constexpr std::uint8_t kByChannel[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                              2, 6, 10, 14, 3, 7, 11, 15};
  const V8 quads = hn::TableLookupBytes(rgbx, every_block(kByChannel));
  alignas(64) std::uint8_t bytes[kBytes];
  if constexpr (kBlocks == 4) {
    alignas(64) static constexpr std::int32_t kLanes[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                            2, 6, 10, 14, 3, 7, 11, 15};
    const auto lanes = hn::SetTableIndices(D32(), kLanes);
    hn::Store(hn::BitCast(D8(), hn::TableLookupLanes(hn::BitCast(D32(), quads), lanes)), D8(),
              bytes);
  } else if constexpr (kBlocks == 2) {
    alignas(32) static constexpr std::int32_t kLanes[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto lanes = hn::SetTableIndices(D32(), kLanes);
    hn::Store(hn::BitCast(D8(), hn::TableLookupLanes(hn::BitCast(D32(), quads), lanes)), D8(),
              bytes);
  } else {
    hn::Store(quads, D8(), bytes);
  }
  std::memcpy(out, bytes, 4 * kBlocks);
  std::memcpy(out + stride, bytes + 4 * kBlocks, 4 * kBlocks);
  std::memcpy(out + 2 * stride, bytes + 8 * kBlocks, 4 * kBlocks);
}

// The same, interleaved; up to 16 bytes more than that are written.
HWY_INLINE void store_interleaved(V8 rgbx, std::uint8_t* out) {
  alignas(16) static constexpr std::uint8_t kNoFourth[16] = {
      0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, kNone, kNone, kNone, kNone};
  V8 rgb = hn::TableLookupBytes(rgbx, every_block(kNoFourth));
  if constexpr (kBlocks == 4) {
    alignas(64) static constexpr std::int32_t kLanes[16] = {0,  1,  2,  4,  5, 6, 8,  9,
                                                            10, 12, 13, 14, 3, 7, 11, 15};
    const auto lanes = hn::SetTableIndices(D32(), kLanes);
    rgb = hn::BitCast(D8(), hn::TableLookupLanes(hn::BitCast(D32(), rgb), lanes));
  } else if constexpr (kBlocks == 2) {
    alignas(32) static constexpr std::int32_t kLanes[8] = {0, 1, 2, 4, 5, 6, 3, 7};
    const auto lanes = hn::SetTableIndices(D32(), kLanes);
    rgb = hn::BitCast(D8(), hn::TableLookupLanes(hn::BitCast(D32(), rgb), lanes));
  }
  hn::StoreU(rgb, D8(), out);
}

template <int kTaps>
void resize_rgb(const std::uint8_t* source, const ColumnTable& table, std::size_t begin,
                std::size_t end, const RowTarget& target) {
  alignas(16) static constexpr std::uint8_t kTaps01[16] = {
      0, kNone, 3, kNone, 1, kNone, 4, kNone, 2, kNone, 5, kNone, kNone, kNone, kNone, kNone};
  alignas(16) static constexpr std::uint8_t kTaps23[16] = {
      6, kNone, 9, kNone, 7, kNone, 10, kNone, 8, kNone, 11, kNone, kNone, kNone, kNone, kNone};
  alignas(16) static constexpr std::uint8_t kTap4[16] = {12,    kNone, kNone, kNone, 13,    kNone,
                                                         kNone, kNone, 14,    kNone, kNone, kNone,
                                                         kNone, kNone, kNone, kNone};
  const Shuffles shuffles{every_block(kTaps01), every_block(kTaps23), every_block(kTap4)};
  for (std::size_t x = begin; x < end; x += 4 * kBlocks) {
    const V8 rgbx = pack(sum_rgb<kTaps, 0>(source, table, x, shuffles),
                         sum_rgb<kTaps, 1>(source, table, x, shuffles),
                         sum_rgb<kTaps, 2>(source, table, x, shuffles),
                         sum_rgb<kTaps, 3>(source, table, x, shuffles));
    if (target.plane_stride == 0) {
      store_interleaved(rgbx, target.data + 3 * x);
    } else {
      store_planes(rgbx, target.data + x, target.plane_stride);
    }
  }
}

// One channel: a block holds four columns of four taps.
inline void resize_gray(const std::uint8_t* source, const ColumnTable& table, std::size_t begin,
                        std::size_t end, std::uint8_t* out) {
  const hn::FixedTag<std::uint8_t, 16> d8;
  const hn::FixedTag<std::int16_t, 8> d16;
  const hn::FixedTag<std::int32_t, 4> d32;
  const hn::FixedTag<std::uint32_t, 4> du32;
  alignas(16) static constexpr std::uint8_t kTaps01[16] = {
      0, kNone, 1, kNone, 4, kNone, 5, kNone, 8, kNone, 9, kNone, 12, kNone, 13, kNone};
  alignas(16) static constexpr std::uint8_t kTaps23[16] = {
      2, kNone, 3, kNone, 6, kNone, 7, kNone, 10, kNone, 11, kNone, 14, kNone, 15, kNone};
  const auto taps01 = hn::Load(d8, kTaps01);
  const auto taps23 = hn::Load(d8, kTaps23);
  const int pairs = (table.taps + 1) / 2;
  auto unused = hn::Zero(d32);
  for (std::size_t x = begin; x < end; x += 4) {
    auto high = hn::Zero(d32);
    auto low = hn::Set(d32, kHalf);
    const std::uint8_t* from = source;
    for (int pair = 0; pair < pairs; ++pair) {
      alignas(16) std::uint8_t quads[16];
      for (std::size_t i = 0; i < 4; ++i) {
        std::memcpy(quads + 4 * i, from + table.offsets[x + i], 4);
      }
      const std::size_t at = static_cast<std::size_t>(pair) * table.columns + x;
      const auto pixels = hn::BitCast(
          d16, hn::TableLookupBytes(hn::Load(d8, quads), pair % 2 == 0 ? taps01 : taps23));
      const auto weights_high = hn::BitCast(d16, hn::LoadU(du32, table.high + at));
      const auto weights_low = hn::BitCast(d16, hn::LoadU(du32, table.low + at));
      high = hn::ReorderWidenMulAccumulate(d32, pixels, weights_high, high, unused);
      low = hn::ReorderWidenMulAccumulate(d32, pixels, weights_low, low, unused);
      if (pair % 2 == 1) from += 4;
    }
    const auto sum = hn::ShiftRight<kWeightBits>(hn::Add(hn::ShiftLeft<8>(high), low));
    hn::StoreU(hn::DemoteTo(hn::FixedTag<std::uint8_t, 4>(), sum), hn::FixedTag<std::uint8_t, 4>(),
               out + x);
  }
}

inline void resize_row(const std::uint8_t* source, const ColumnTable& table, std::size_t begin,
                       std::size_t end, int channels, const RowTarget& target) {
  if (channels == 1) return resize_gray(source, table, begin, end, target.data);
  switch (table.taps) {
    case 1:
    case 2: return resize_rgb<2>(source, table, begin, end, target);
    case 3:
    case 4: return resize_rgb<4>(source, table, begin, end, target);
    case 5: return resize_rgb<5>(source, table, begin, end, target);
    case 6: return resize_rgb<6>(source, table, begin, end, target);
    default: return resize_rgb<0>(source, table, begin, end, target);
  }
}

// ------------------------------ arrange_row

HWY_INLINE V8 reverse_bytes(V8 v) {
  alignas(16) static constexpr std::uint8_t kReversed[16] = {15, 14, 13, 12, 11, 10, 9, 8,
                                                             7,  6,  5,  4,  3,  2,  1, 0};
  const V8 turned = hn::TableLookupBytes(v, every_block(kReversed));
  if constexpr (kBlocks == 1) {
    return turned;
  } else {
    return hn::ReverseBlocks(D8(), turned);
  }
}

template <bool kFlip>
HWY_INLINE void arrange_vector(const std::uint8_t* source, std::size_t x, std::size_t width,
                               int channels, const RowTarget& target) {
  const std::size_t to = kFlip ? width - x - kBytes : x;
  if (channels == 1) {
    const V8 v = hn::LoadU(D8(), source + x);
    hn::StoreU(kFlip ? reverse_bytes(v) : v, D8(), target.data + to);
    return;
  }
  V8 r;
  V8 g;
  V8 b;
  hn::LoadInterleaved3(D8(), source + 3 * x, r, g, b);
  if (kFlip) {
    r = reverse_bytes(r);
    g = reverse_bytes(g);
    b = reverse_bytes(b);
  }
  if (target.plane_stride == 0) {
    hn::StoreInterleaved3(r, g, b, D8(), target.data + 3 * to);
  } else {
    hn::StoreU(r, D8(), target.data + to);
    hn::StoreU(g, D8(), target.data + target.plane_stride + to);
    hn::StoreU(b, D8(), target.data + 2 * target.plane_stride + to);
  }
}

template <bool kFlip>
void arrange(const std::uint8_t* source, std::size_t width, int channels, const RowTarget& target) {
  if (width >= kBytes) {
    std::size_t x = 0;
    for (; x + kBytes <= width; x += kBytes) {
      arrange_vector<kFlip>(source, x, width, channels, target);
    }
    if (x < width) arrange_vector<kFlip>(source, width - kBytes, width, channels, target);
    return;
  }
  const auto step = static_cast<std::size_t>(channels);
  for (std::size_t x = 0; x < width; ++x) {
    const std::size_t to = kFlip ? width - 1 - x : x;
    for (std::size_t c = 0; c < step; ++c) {
      const std::size_t at =
          target.plane_stride == 0 ? to * step + c : c * target.plane_stride + to;
      target.data[at] = source[x * step + c];
    }
  }
}

inline void arrange_row(const std::uint8_t* source, std::size_t width, int channels, bool flip,
                        const RowTarget& target) {
  if (flip) {
    arrange<true>(source, width, channels, target);
  } else if (channels == 1 || target.plane_stride == 0) {
    std::memcpy(target.data, source, width * static_cast<std::size_t>(channels));
  } else {
    arrange<false>(source, width, channels, target);
  }
}

// ------------------------------ blend_rows

template <int kPairs>
HWY_INLINE V8 blend_vector(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                           std::size_t x) {
  const V8 zero = hn::Zero(D8());
  Sums sums0 = first_sums();
  Sums sums1 = first_sums();
  Sums sums2 = first_sums();
  Sums sums3 = first_sums();
  const int count = kPairs == 0 ? pairs : kPairs;
  for (int pair = 0; pair < count; ++pair) {
    const V16 high = hn::BitCast(D16(), hn::Set(hn::RebindToUnsigned<D32>(), weights[pair].high));
    const V16 low = hn::BitCast(D16(), hn::Set(hn::RebindToUnsigned<D32>(), weights[pair].low));
    const V8 a = hn::LoadU(D8(), rows[2 * pair] + x);
    const V8 b = hn::LoadU(D8(), rows[2 * pair + 1] + x);
    const V8 lower = hn::InterleaveLower(D8(), a, b);
    const V8 upper = hn::InterleaveUpper(D8(), a, b);
    const V16 p0 = hn::BitCast(D16(), hn::InterleaveLower(D8(), lower, zero));
    const V16 p1 = hn::BitCast(D16(), hn::InterleaveUpper(D8(), lower, zero));
    const V16 p2 = hn::BitCast(D16(), hn::InterleaveLower(D8(), upper, zero));
    const V16 p3 = hn::BitCast(D16(), hn::InterleaveUpper(D8(), upper, zero));
    sums0 = {add_products(p0, high, sums0.high), add_products(p0, low, sums0.low)};
    sums1 = {add_products(p1, high, sums1.high), add_products(p1, low, sums1.low)};
    sums2 = {add_products(p2, high, sums2.high), add_products(p2, low, sums2.low)};
    sums3 = {add_products(p3, high, sums3.high), add_products(p3, low, sums3.low)};
  }
  return pack(finish(sums0), finish(sums1), finish(sums2), finish(sums3));
}

template <int kPairs>
void blend(const std::uint8_t* const* rows, const WeightPair* weights, int pairs, std::size_t bytes,
           std::uint8_t* out) {
  if (bytes < kBytes) {
    alignas(64) std::uint8_t last[kBytes];
    hn::Store(blend_vector<kPairs>(rows, weights, pairs, 0), D8(), last);
    std::memcpy(out, last, bytes);
    return;
  }
  std::size_t x = 0;
  for (; x + kBytes <= bytes; x += kBytes) {
    hn::StoreU(blend_vector<kPairs>(rows, weights, pairs, x), D8(), out + x);
  }
  if (x == bytes) return;
  hn::StoreU(blend_vector<kPairs>(rows, weights, pairs, bytes - kBytes), D8(),
             out + bytes - kBytes);
}

inline void blend_rows(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                       std::size_t bytes, std::uint8_t* out) {
  switch (pairs) {
    case 1: return blend<1>(rows, weights, pairs, bytes, out);
    case 2: return blend<2>(rows, weights, pairs, bytes, out);
    case 3: return blend<3>(rows, weights, pairs, bytes, out);
    default: return blend<0>(rows, weights, pairs, bytes, out);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

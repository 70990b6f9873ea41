// SPDX-License-Identifier: Apache-2.0
// Included by jpeg_kernels.cpp once for each instruction set: the inverse transform.
#if defined(SPDLD_MEDIA_JPEG_DCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_JPEG_DCT_INL_H_
#undef SPDLD_MEDIA_JPEG_DCT_INL_H_
#else
#define SPDLD_MEDIA_JPEG_DCT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "media/jpeg/jpeg_kernels.h"
#include "media/jpeg/jpeg_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

constexpr int kConstBits = 13;
constexpr int kPass1Bits = 2;

constexpr std::int16_t fix(double value) {
  return static_cast<std::int16_t>(value * (1 << kConstBits) + 0.5);
}
constexpr std::int16_t k0298 = fix(0.298631336), k0390 = fix(0.390180644), k0541 = fix(0.541196100),
                       k0765 = fix(0.765366865), k0899 = fix(0.899976223), k1175 = fix(1.175875602),
                       k1501 = fix(1.501321110), k1847 = fix(1.847759065), k1961 = fix(1.961570560),
                       k2053 = fix(2.053119869), k2562 = fix(2.562915447), k3072 = fix(3.072711026);

#if HWY_TARGET == HWY_SCALAR

inline std::int16_t wrapped(std::int32_t value) { return static_cast<std::int16_t>(value); }

// One pass of Loeffler, Ligtenberg and Moschytz's transform, over values `step` apart. Sums of two
// inputs wrap at 16 bits.
template <int kBits>
inline void transform(std::int16_t* values, std::ptrdiff_t step) {
  std::int32_t r[8];
  for (int i = 0; i < 8; ++i) r[i] = values[i * step];
  const auto put = [&](int i, std::int32_t value) {
    const std::int32_t descaled = (value + (1 << (kBits - 1))) >> kBits;
    values[i * step] =
        static_cast<std::int16_t>(std::clamp<std::int32_t>(descaled, INT16_MIN, INT16_MAX));
  };
  const auto sum = [](std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  };
  const auto difference = [](std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
  };
  const std::int32_t even3 = r[2] * (k0541 + k0765) + r[6] * k0541;
  const std::int32_t even2 = r[2] * k0541 + r[6] * (k0541 - k1847);
  const std::int32_t even0 = wrapped(r[0] + r[4]) * (1 << kConstBits);
  const std::int32_t even1 = wrapped(r[0] - r[4]) * (1 << kConstBits);
  const std::int32_t z3 = wrapped(r[7] + r[3]), z4 = wrapped(r[5] + r[1]);
  const std::int32_t w3 = z3 * (k1175 - k1961) + z4 * k1175;
  const std::int32_t w4 = z3 * k1175 + z4 * (k1175 - k0390);
  const std::int32_t odd0 = sum(r[7] * (k0298 - k0899) - r[1] * k0899, w3);
  const std::int32_t odd1 = sum(r[5] * (k2053 - k2562) - r[3] * k2562, w4);
  const std::int32_t odd2 = sum(r[3] * (k3072 - k2562) - r[5] * k2562, w3);
  const std::int32_t odd3 = sum(r[1] * (k1501 - k0899) - r[7] * k0899, w4);
  const std::int32_t t10 = sum(even0, even3), t13 = difference(even0, even3);
  const std::int32_t t11 = sum(even1, even2), t12 = difference(even1, even2);
  put(0, sum(t10, odd3));
  put(7, difference(t10, odd3));
  put(1, sum(t11, odd2));
  put(6, difference(t11, odd2));
  put(2, sum(t12, odd1));
  put(5, difference(t12, odd1));
  put(3, sum(t13, odd0));
  put(4, difference(t13, odd0));
}

inline void inverse_dct(const BlockRow& row, const JpegMultipliers& multipliers, std::uint8_t* out,
                        std::ptrdiff_t stride) {
  for (std::size_t block = 0; block < row.count; ++block) {
    const std::int16_t* const coefficients = row.block(block);
    std::int16_t values[64];
    bool has_one_row = true;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::int16_t coefficient =
          coefficients[row.order == BlockOrder::kRows ? i : kNaturalToZigzag[i]];
      values[i] = wrapped(coefficient * multipliers[i]);
      has_one_row = has_one_row && (i < 8 || coefficient == 0);
    }
    for (int i = 0; i < 8; ++i) {
      if (has_one_row) {  // libjpeg-turbo does not transform these, and wraps
        for (int j = 7; j >= 0; --j) values[8 * j + i] = wrapped(values[i] * (1 << kPass1Bits));
      } else {
        transform<kConstBits - kPass1Bits>(values + i, 8);
      }
    }
    for (int i = 0; i < 8; ++i) {
      transform<kConstBits + kPass1Bits + 3>(values + 8 * i, 1);
      for (int j = 0; j < 8; ++j)
        out[i * stride + static_cast<std::ptrdiff_t>(8 * block) + j] =
            static_cast<std::uint8_t>(std::clamp(values[8 * i + j] + 128, 0, 255));
    }
  }
}

#else

// A vector holds one row of 8 coefficients of as many blocks as it has 128-bit parts: all that is
// done to them stays within these parts.

using D16 = hn::CappedTag<std::int16_t, 32>;
using D32 = hn::RepartitionToWide<D16>;
using D64 = hn::RepartitionToWide<D32>;
using DI8 = hn::Repartition<std::int8_t, D16>;
using DU8 = hn::Repartition<std::uint8_t, D16>;
using DU32 = hn::Repartition<std::uint32_t, D16>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
using VU8 = hn::Vec<DU8>;

constexpr std::size_t kBlocks = (HWY_MAX_BYTES < 64 ? HWY_MAX_BYTES : 64) / 16;
// Row r of a block in zigzag order is put together of parts of vectors of 8 coefficients.
struct RowPart {
  int vector = 0;
  std::uint8_t lanes[16] = {};
};
struct RowParts {
  int count = 0;
  RowPart parts[5];
};

constexpr RowParts parts_of(int row) {
  RowParts all;
  for (int vector = 0; vector < 8; ++vector) {
    RowPart part{.vector = vector};
    bool is_used = false;
    for (int column = 0; column < 8; ++column) {
      const int at = kNaturalToZigzag[static_cast<std::size_t>(8 * row + column)];
      const bool is_here = at / 8 == vector;
      is_used = is_used || is_here;
      part.lanes[2 * column] = is_here ? static_cast<std::uint8_t>(at % 8 * 2) : 0x80;
      part.lanes[2 * column + 1] = is_here ? static_cast<std::uint8_t>(at % 8 * 2 + 1) : 0x80;
    }
    if (is_used) all.parts[all.count++] = part;
  }
  return all;
}

alignas(16) constexpr RowParts kRowParts[8] = {parts_of(0), parts_of(1), parts_of(2), parts_of(3),
                                               parts_of(4), parts_of(5), parts_of(6), parts_of(7)};

// 8 coefficients of each block, from the same place in all.
HWY_INLINE V16 load_blocks(const std::int16_t* const* blocks, std::size_t at) {
  const hn::CappedTag<std::int16_t, 8> d8;
#if HWY_MAX_BYTES >= 64
  const hn::CappedTag<std::int16_t, 16> d16;
  const auto low = hn::Combine(d16, hn::LoadU(d8, blocks[1] + at), hn::LoadU(d8, blocks[0] + at));
  const auto high = hn::Combine(d16, hn::LoadU(d8, blocks[3] + at), hn::LoadU(d8, blocks[2] + at));
  return hn::Combine(D16(), high, low);
#elif HWY_MAX_BYTES >= 32
  return hn::Combine(D16(), hn::LoadU(d8, blocks[1] + at), hn::LoadU(d8, blocks[0] + at));
#else
  return hn::LoadU(d8, blocks[0] + at);
#endif
}

// How many parts of a row lie in the first vectors.
constexpr int parts_in(int row, int vectors) {
  int count = 0;
  while (count < kRowParts[row].count && kRowParts[row].parts[count].vector < vectors) ++count;
  return count;
}

// The first `kVectors` have all coefficients that are not zero.
template <int kRow, int kVectors>
HWY_INLINE V16 row_of(const V16 (&zigzag)[8]) {
  constexpr int kCount = parts_in(kRow, kVectors);
  if constexpr (kCount == 0) return hn::Zero(D16());
  const auto part = [&](int i) {
    const RowPart& from = kRowParts[kRow].parts[i];
    return hn::BitCast(D16(), hn::TableLookupBytesOr0(hn::BitCast(DU8(), zigzag[from.vector]),
                                                      hn::LoadDup128(DU8(), from.lanes)));
  };
  V16 row = part(0);
  if constexpr (kCount > 1) row = hn::Or(row, part(1));
  if constexpr (kCount > 2) row = hn::Or(row, part(2));
  if constexpr (kCount > 3) row = hn::Or(row, part(3));
  if constexpr (kCount > 4) row = hn::Or(row, part(4));
  return row;
}

template <int kVectors>
HWY_INLINE void put_in_rows(const V16 (&zigzag)[8], V16 (&r)[8]) {
  r[0] = row_of<0, kVectors>(zigzag);
  r[1] = row_of<1, kVectors>(zigzag);
  r[2] = row_of<2, kVectors>(zigzag);
  r[3] = row_of<3, kVectors>(zigzag);
  r[4] = row_of<4, kVectors>(zigzag);
  r[5] = row_of<5, kVectors>(zigzag);
  r[6] = row_of<6, kVectors>(zigzag);
  r[7] = row_of<7, kVectors>(zigzag);
}

// a * by_a + b * by_b, where a and b take turns.
HWY_INLINE V32 products(V16 both, std::int16_t by_a, std::int16_t by_b) {
  const auto by = static_cast<std::uint32_t>(static_cast<std::uint16_t>(by_b)) << 16 |
                  static_cast<std::uint16_t>(by_a);
  return pair_products(D32(), both, hn::BitCast(D16(), hn::Set(D32(), static_cast<int>(by))));
}

// One half of the columns of a row, each beside the same of another row.
template <bool kUpper>
HWY_INLINE V16 pairs(V16 a, V16 b) {
  if constexpr (kUpper) return hn::InterleaveUpper(D16(), a, b);
  return hn::InterleaveLower(D16(), a, b);
}

// value * 2^kConstBits, and the half of 2^kBits that makes a later shift round to the nearest.
template <int kBits, bool kUpper>
HWY_INLINE V32 scaled(V16 value) {
  constexpr int kHalf = kBits - 1 - kConstBits < 0 ? 0 : kBits - 1 - kConstBits;
  constexpr int kBy = kBits - 1 - kHalf;  // 2^kBy * 2^kHalf is a half of 2^kBits
  return products(pairs<kUpper>(value, hn::Set(D16(), std::int16_t{1 << kBy})), 1 << kConstBits,
                  1 << kHalf);
}

// Sums and differences of the even and the odd half are the outermost rows first.
HWY_INLINE void put_sums(const V32 (&even)[4], const V32 (&odd)[4], V32 (&sums)[8]) {
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    sums[i] = hn::Add(even[i], odd[i]);
    sums[7 - i] = hn::Sub(even[i], odd[i]);
  }
}

// One pass of Loeffler, Ligtenberg and Moschytz's transform, over one half of the columns. Sums of
// two inputs wrap at 16 bits.
template <int kBits, bool kUpper>
HWY_INLINE void transform_half(const V16 (&r)[8], V32 (&sums)[8]) {
  const V16 p26 = pairs<kUpper>(r[2], r[6]);
  const V32 even3 = products(p26, k0541 + k0765, k0541);
  const V32 even2 = products(p26, k0541, k0541 - k1847);
  const V32 even0 = scaled<kBits, kUpper>(hn::Add(r[0], r[4]));
  const V32 even1 = scaled<kBits, kUpper>(hn::Sub(r[0], r[4]));
  const V16 p34 = pairs<kUpper>(hn::Add(r[7], r[3]), hn::Add(r[5], r[1]));
  const V32 w3 = products(p34, k1175 - k1961, k1175);
  const V32 w4 = products(p34, k1175, k1175 - k0390);
  const V16 p71 = pairs<kUpper>(r[7], r[1]), p53 = pairs<kUpper>(r[5], r[3]);
  const V32 odd0 = hn::Add(products(p71, k0298 - k0899, -k0899), w3);
  const V32 odd1 = hn::Add(products(p53, k2053 - k2562, -k2562), w4);
  const V32 odd2 = hn::Add(products(p53, -k2562, k3072 - k2562), w3);
  const V32 odd3 = hn::Add(products(p71, -k0899, k1501 - k0899), w4);
  put_sums(
      {hn::Add(even0, even3), hn::Add(even1, even2), hn::Sub(even1, even2), hn::Sub(even0, even3)},
      {odd3, odd2, odd1, odd0}, sums);
}

// The same of columns whose last four values are zero.
template <int kBits, bool kUpper>
HWY_INLINE void transform_upper_half(const V16 (&r)[8], V32 (&sums)[8]) {
  const V16 p2 = pairs<kUpper>(r[2], hn::Zero(D16()));
  const V32 even3 = products(p2, k0541 + k0765, 0);
  const V32 even2 = products(p2, k0541, 0);
  const V32 even = scaled<kBits, kUpper>(r[0]);
  const V16 p31 = pairs<kUpper>(r[3], r[1]);
  const V32 odd0 = products(p31, k1175 - k1961, k1175 - k0899);
  const V32 odd1 = products(p31, k1175 - k2562, k1175 - k0390);
  const V32 odd2 = products(p31, k3072 - k2562 + k1175 - k1961, k1175);
  const V32 odd3 = products(p31, k1175, k1501 - k0899 + k1175 - k0390);
  put_sums({hn::Add(even, even3), hn::Add(even, even2), hn::Sub(even, even2), hn::Sub(even, even3)},
           {odd3, odd2, odd1, odd0}, sums);
}

constexpr int kColumnBits = kConstBits - kPass1Bits;
constexpr int kRowBits = kConstBits + kPass1Bits + 3;

HWY_INLINE void descale_columns(const V32 (&low)[8], const V32 (&high)[8], V16 (&r)[8]) {
  HWY_UNROLL(8)
  for (int i = 0; i < 8; ++i)
    r[i] = hn::ReorderDemote2To(D16(), hn::ShiftRight<kColumnBits>(low[i]),
                                hn::ShiftRight<kColumnBits>(high[i]));
}

HWY_INLINE void transform_columns(V16 (&r)[8]) {
  V32 low[8], high[8];
  transform_half<kColumnBits, false>(r, low);
  transform_half<kColumnBits, true>(r, high);
  descale_columns(low, high, r);
}

// Of columns whose last four values are zero.
HWY_INLINE void transform_upper_columns(V16 (&r)[8]) {
  V32 low[8], high[8];
  transform_upper_half<kColumnBits, false>(r, low);
  transform_upper_half<kColumnBits, true>(r, high);
  descale_columns(low, high, r);
}

// Descales what transform_half() makes of two columns. Their values take turns in the result, which
// begins with one of the first column.
HWY_INLINE V16 descale_rows(V32 first, V32 second) {
  const auto lower = hn::BitCast(D16(), hn::ShiftRight<16>(hn::BitCast(DU32(), first)));
  return hn::ShiftRight<kRowBits - 16>(hn::OddEven(hn::BitCast(D16(), second), lower));
}

HWY_INLINE void transpose(V16 (&r)[8]) {
  const D16 d;
  V16 a[8];
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = hn::InterleaveLower(d, r[i], r[i + 4]);
    a[2 * i + 1] = hn::InterleaveUpper(d, r[i], r[i + 4]);
  }
  // a[2i] has columns 0 to 3 of rows i and i + 4, a[2i + 1] columns 4 to 7.
  V16 b[8];
  HWY_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    HWY_UNROLL(2)
    for (int half = 0; half < 2; ++half) {
      const V16 even = a[2 * i + half], odd = a[2 * (i + 2) + half];
      b[4 * half + 2 * i] = hn::InterleaveLower(d, even, odd);
      b[4 * half + 2 * i + 1] = hn::InterleaveUpper(d, even, odd);
    }
  }
  // b[4h + 2i] has columns 4h and 4h + 1 of rows i, i + 2, i + 4 and i + 6.
  HWY_UNROLL(2)
  for (int half = 0; half < 2; ++half) {
    HWY_UNROLL(2)
    for (int j = 0; j < 2; ++j) {
      const V16 even = b[4 * half + j], odd = b[4 * half + 2 + j];
      r[4 * half + 2 * j] = hn::InterleaveLower(d, even, odd);
      r[4 * half + 2 * j + 1] = hn::InterleaveUpper(d, even, odd);
    }
  }
}

// Of two rows that lie beside each other in each block: first the parts of one, then of the other.
struct RowsApart {
  std::int32_t lanes[4 * kBlocks] = {};
};
constexpr RowsApart rows_apart() {
  RowsApart apart;
  for (std::size_t i = 0; i < 2 * kBlocks; ++i) {
    apart.lanes[i] = static_cast<std::int32_t>(i / 2 * 4 + i % 2);
    apart.lanes[2 * kBlocks + i] = apart.lanes[i] + 2;
  }
  return apart;
}
constexpr RowsApart kRowsApart = rows_apart();

// Rows of samples, from 8 bits around 0.
HWY_INLINE void store_rows(VU8 rows, std::uint8_t* first, std::uint8_t* second) {
  const D32 d;
  const hn::Half<DU8> half;
  const auto apart = hn::BitCast(
      DU8(), hn::TableLookupLanes(hn::BitCast(d, rows), hn::SetTableIndices(d, kRowsApart.lanes)));
  const auto samples = hn::Xor(apart, hn::Set(DU8(), 0x80));
  hn::StoreU(hn::LowerHalf(half, samples), half, first);
  hn::StoreU(hn::UpperHalf(half, samples), half, second);
}

// The second pass: c holds columns, and becomes rows of samples.
HWY_INLINE void transform_rows(const V16 (&c)[8], std::uint8_t* out, std::ptrdiff_t stride) {
  const DU8 d;
  V32 upper[8], lower[8];  // rows 0 to 3, and 4 to 7
  transform_half<kRowBits, false>(c, upper);
  transform_half<kRowBits, true>(c, lower);
  // Columns i and i + 4 of both halves.
  const auto both = [&](int i) {
    return hn::BitCast(d, in_bytes(DI8(), descale_rows(upper[i], upper[i + 4]),
                                   descale_rows(lower[i], lower[i + 4])));
  };
  const VU8 c04 = both(0), c15 = both(1), c26 = both(2), c37 = both(3);
  const auto store_half = [&](VU8 even, VU8 odd, std::uint8_t* to) {
    store_rows(hn::InterleaveLower(d, even, odd), to, to + stride);
    store_rows(hn::InterleaveUpper(d, even, odd), to + 2 * stride, to + 3 * stride);
  };
  store_half(hn::InterleaveLower(d, c04, c26), hn::InterleaveLower(d, c15, c37), out);
  store_half(hn::InterleaveUpper(d, c04, c26), hn::InterleaveUpper(d, c15, c37), out + 4 * stride);
}

HWY_INLINE bool are_zero(V16 values) { return hn::AllTrue(D16(), hn::Eq(values, hn::Zero(D16()))); }

// libjpeg-turbo does not transform the columns of a block that has coefficients in its first row
// alone, and then wraps where the transform saturates. That shows only beyond this.
HWY_INLINE bool may_wrap(V16 first_row) {
  const auto both = [](std::uint16_t value) {
    return hn::BitCast(D16(), hn::Set(D32(), static_cast<std::int32_t>(value * 0x10001u)));
  };
  const V16 beyond = hn::And(hn::Add(first_row, both(8192)), both(0xC000));
  return !are_zero(beyond);
}

// All lanes of the blocks whose rows but the first are zero.
HWY_INLINE hn::Mask<D16> have_one_row(const V16 (&r)[8]) {
  V16 any = r[1];
  for (int i = 2; i < 8; ++i) any = hn::Or(any, r[i]);
  const auto halves = hn::BitCast(D64(), any);
  const auto both = hn::Or(halves, hn::Shuffle01(halves));
  return hn::MaskFromVec(hn::BitCast(D16(), hn::VecFromMask(D64(), hn::Eq(both, hn::Zero(D64())))));
}

// Blocks of one value each: what both passes of the transform make of it.
HWY_INLINE void store_means(V16 means, V16 multipliers, std::uint8_t* out, std::ptrdiff_t stride) {
  const D16 d;
  const V16 shifted = hn::ShiftLeft<kPass1Bits>(hn::Mul(means, multipliers));
  constexpr int kLeft = kPass1Bits + 3;
  const V16 half = hn::Set(d, std::int16_t{1 << (kLeft - 1)});
  // (shifted + half) >> kLeft, whose sum may not fit.
  const V16 low = hn::And(shifted, hn::Set(d, std::int16_t{(1 << kLeft) - 1}));
  const V16 mean =
      hn::Add(hn::ShiftRight<kLeft>(shifted), hn::ShiftRight<kLeft>(hn::Add(low, half)));
  const V16 row = hn::Broadcast<0>(mean);
  const VU8 rows = hn::BitCast(DU8(), in_bytes(DI8(), row, row));
  for (int i = 0; i < 8; i += 2) store_rows(rows, out + i * stride, out + (i + 1) * stride);
}

template <BlockOrder kOrder, int kVectors>
HWY_INLINE void order_rows(const V16 (&given)[8], V16 (&r)[8]) {
  if constexpr (kOrder == BlockOrder::kZigzag) {
    put_in_rows<kVectors>(given, r);
  } else {
    HWY_UNROLL(8)
    for (int i = 0; i < 8; ++i) r[i] = given[i];
  }
}

// The multipliers of each row, repeated for every block that a vector holds.
struct Multipliers {
  explicit Multipliers(const JpegMultipliers& rows) {
    for (std::size_t i = 0; i < 8; ++i) by[i] = hn::LoadDup128(D16(), rows.data() + 8 * i);
  }
  V16 by[8];
};

HWY_INLINE void dequantize(const Multipliers& multipliers, V16 (&r)[8]) {
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < 8; ++i) r[i] = hn::Mul(r[i], multipliers.by[i]);
}

// Blocks of which may_wrap() holds.
template <BlockOrder kOrder>
HWY_NOINLINE void transform_large_blocks(const std::int16_t* const* blocks,
                                         const Multipliers& multipliers, std::uint8_t* out,
                                         std::ptrdiff_t stride) {
  V16 given[8], r[8];
  for (std::size_t i = 0; i < 8; ++i) given[i] = load_blocks(blocks, 8 * i);
  order_rows<kOrder, 8>(given, r);
  const auto plain = have_one_row(r);
  dequantize(multipliers, r);
  const V16 shifted = hn::ShiftLeft<kPass1Bits>(r[0]);
  transform_columns(r);
  for (V16& row : r) row = hn::IfThenElse(plain, shifted, row);
  transpose(r);
  transform_rows(r, out, stride);
}

template <BlockOrder kOrder>
HWY_INLINE void transform_blocks(const std::int16_t* const* blocks, const Multipliers& multipliers,
                                 std::uint8_t* out, std::ptrdiff_t stride) {
  const D16 d;
  V16 given[8];
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < 8; ++i) given[i] = load_blocks(blocks, 8 * i);
  const bool is_early = are_zero(hn::Or(hn::Or(given[4], given[5]), hn::Or(given[6], given[7])));
  V16 r[8];
  if (is_early) {
    // Without the first coefficient of each block, which is its mean.
    const V16 first = hn::BitCast(
        d, hn::ShiftLeftBytes<2>(hn::ShiftRightBytes<2>(DU8(), hn::BitCast(DU8(), given[0]))));
    if (are_zero(hn::Or(hn::Or(first, given[1]), hn::Or(given[2], given[3]))))
      return store_means(given[0], multipliers.by[0], out, stride);
    order_rows<kOrder, 4>(given, r);
  } else {
    order_rows<kOrder, 8>(given, r);
  }
  dequantize(multipliers, r);
  if (HWY_UNLIKELY(may_wrap(r[0])))
    return transform_large_blocks<kOrder>(blocks, multipliers, out, stride);
  if (kOrder == BlockOrder::kRows && is_early) {
    transform_upper_columns(r);
  } else {
    transform_columns(r);
  }
  transpose(r);
  transform_rows(r, out, stride);
}

template <BlockOrder kOrder>
inline void transform_row(const BlockRow& row, const JpegMultipliers& by_row, std::uint8_t* out,
                          std::ptrdiff_t stride) {
  const Multipliers multipliers(by_row);
  const std::int16_t* blocks[kBlocks];
  const std::int16_t* next = row.first;
  std::size_t column = 0;
  for (std::size_t i = 0; i < row.count; i += kBlocks) {
    for (std::size_t j = 0; j < kBlocks; ++j) {
      blocks[j] = next;
      if (i + j + 1 >= row.count) continue;  // the last one stands for those that are missing
      next += 64;
      if (++column < row.columns) continue;
      column = 0;
      next += row.mcu_step - 64 * row.columns;
    }
    transform_blocks<kOrder>(blocks, multipliers, out + 8 * i, stride);
  }
}

inline void inverse_dct(const BlockRow& row, const JpegMultipliers& multipliers, std::uint8_t* out,
                        std::ptrdiff_t stride) {
  if (row.order == BlockOrder::kRows) {
    transform_row<BlockOrder::kRows>(row, multipliers, out, stride);
  } else {
    transform_row<BlockOrder::kZigzag>(row, multipliers, out, stride);
  }
}

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_JPEG_DCT_INL_H_

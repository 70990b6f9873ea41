// SPDX-License-Identifier: Apache-2.0
#include "transform/image/row_kernels_avx512.h"

#include <hwy/targets.h>

#include <cstring>

#include "base/check.h"
#include "transform/image/axis_filter.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own headers leave a vector undefined on purpose, and gcc 12 warns of it (PR 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

namespace spdld::transform::avx512 {

#if defined(__x86_64__)

#define SPDLD_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))

namespace {

constexpr int kHalf = 1 << (kWeightBits - 1);
constexpr std::ptrdiff_t kQuadBytes = 12;  // four taps of three channels
constexpr std::size_t kVectorBytes = 64;

SPDLD_AVX512 inline __m512i load(const void* from) { return _mm512_loadu_si512(from); }

// The first `count` of 64 bytes, and 0 for the others; may be any number.
SPDLD_AVX512 inline __m512i load_some(const std::uint8_t* from, std::ptrdiff_t count) {
  if (count >= static_cast<std::ptrdiff_t>(kVectorBytes)) return load(from);
  if (count <= 0) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi8((std::uint64_t{1} << count) - 1, from);
}

// Lanes of a, b, c, d of each 16-byte block, one after the other, clamped to bytes.
SPDLD_AVX512 inline __m512i pack(__m512i a, __m512i b, __m512i c, __m512i d) {
  return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

// sum0 + 256 * sum1 + 65536 * sum2 without its fraction bits.
SPDLD_AVX512 inline __m512i finish(__m512i sum0, __m512i sum1, __m512i sum2) {
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sum2, 8), sum1);
  return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), sum0), kWeightBits);
}

SPDLD_AVX512 inline __m512i finish(__m512i high, __m512i low) {
  return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low), kWeightBits);
}

// The sums of one of a group's vectors, by digit.
struct DigitSums {
  __m512i sum0;
  __m512i sum1;
  __m512i sum2;
};

SPDLD_AVX512 inline DigitSums first_sums() {
  return {_mm512_set1_epi32(kHalf), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

SPDLD_AVX512 inline void add_quad(DigitSums& sums, __m512i lower, __m512i upper,
                                  const WindowVector* pattern, const WindowVector* weights) {
  const __m512i pixels = _mm512_permutex2var_epi8(lower, load(pattern), upper);
  sums.sum0 = _mm512_dpbusd_epi32(sums.sum0, pixels, load(weights));
  sums.sum1 = _mm512_dpbusd_epi32(sums.sum1, pixels, load(weights + 1));
  sums.sum2 = _mm512_dpbusd_epi32(sums.sum2, pixels, load(weights + 2));
}

SPDLD_AVX512 inline __m512i finish(const DigitSums& sums) {
  return finish(sums.sum0, sums.sum1, sums.sum2);
}

// The r g b x bytes of one group's columns. `left` bytes may be read; kQuads 0: any number.
template <int kQuads, bool kWhole>
SPDLD_AVX512 inline __m512i resize_group(const std::uint8_t* window, std::ptrdiff_t left,
                                         const WindowVector* patterns, const WindowVector* weights,
                                         int quads) {
  DigitSums sums0 = first_sums();
  DigitSums sums1 = first_sums();
  DigitSums sums2 = first_sums();
  DigitSums sums3 = first_sums();
  const int count = kQuads == 0 ? quads : kQuads;
  for (int quad = 0; quad < count; ++quad) {
    const __m512i lower = kWhole ? load(window) : load_some(window, left);
    const __m512i upper = kWhole ? load(window + 64) : load_some(window + 64, left - 64);
    add_quad(sums0, lower, upper, patterns, weights);
    add_quad(sums1, lower, upper, patterns + 1, weights + kDigits);
    add_quad(sums2, lower, upper, patterns + 2, weights + 2 * kDigits);
    add_quad(sums3, lower, upper, patterns + 3, weights + 3 * kDigits);
    window += kQuadBytes;
    left -= kQuadBytes;
    weights += 4 * kDigits;
  }
  return pack(finish(sums0), finish(sums1), finish(sums2), finish(sums3));
}

template <int kQuads>
SPDLD_AVX512 void resize_groups(const std::uint8_t* source, std::size_t row_bytes,
                                const WindowTable& table, const RowTarget& target) {
  alignas(64) static constexpr std::uint8_t kPlanes[64] = {
      0, 4, 8,  12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,  // r
      1, 5, 9,  13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61,  // g
      2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62,  // b
      3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
  alignas(64) static constexpr std::uint8_t kInterleaved[64] = {
      0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28,
      29, 30, 32, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57,
      58, 60, 61, 62, 3,  7,  11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63};
  const std::size_t plane_stride = target.plane_stride;
  const bool planar = plane_stride != 0;
  const __m512i order = load(planar ? kPlanes : kInterleaved);
  const int quads = kQuads == 0 ? table.quads : kQuads;
  const std::ptrdiff_t reach = kWindowBytes + (quads - 1) * kQuadBytes;
  const std::int32_t* const bases = table.bases;
  const WindowVector* patterns = table.patterns;
  const WindowVector* weights = table.weights;
  std::uint8_t* out = target.data;
  for (std::size_t group = 0, groups = table.groups; group < groups; ++group) {
    const std::uint8_t* const window = source + bases[group];
    const auto left = static_cast<std::ptrdiff_t>(row_bytes) - bases[group];
    const __m512i rgbx = left >= reach
                             ? resize_group<kQuads, true>(window, left, patterns, weights, quads)
                             : resize_group<kQuads, false>(window, left, patterns, weights, quads);
    const __m512i ordered = _mm512_permutexvar_epi8(order, rgbx);
    if (planar) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_castsi512_si128(ordered));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + plane_stride),
                       _mm512_extracti32x4_epi32(ordered, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * plane_stride),
                       _mm512_extracti32x4_epi32(ordered, 2));
      out += kColumnGroup;
    } else {
      _mm512_storeu_si512(out, ordered);
      out += 3 * kColumnGroup;
    }
    patterns += 4;
    weights += static_cast<std::size_t>(quads) * 4 * kDigits;
  }
}

template <int kPairs>
SPDLD_AVX512 inline __m512i blend_vector(const std::uint8_t* const* rows, const WeightPair* weights,
                                         int pairs, std::size_t x) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i half = _mm512_set1_epi32(kHalf);
  __m512i high0 = zero, high1 = zero, high2 = zero, high3 = zero;
  __m512i low0 = half, low1 = half, low2 = half, low3 = half;
  const int count = kPairs == 0 ? pairs : kPairs;
  for (int pair = 0; pair < count; ++pair) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(weights[pair].high));
    const __m512i low = _mm512_set1_epi32(static_cast<int>(weights[pair].low));
    const __m512i a = load(rows[2 * pair] + x);
    const __m512i b = load(rows[2 * pair + 1] + x);
    const __m512i lower = _mm512_unpacklo_epi8(a, b);
    const __m512i upper = _mm512_unpackhi_epi8(a, b);
    const __m512i p0 = _mm512_unpacklo_epi8(lower, zero);
    const __m512i p1 = _mm512_unpackhi_epi8(lower, zero);
    const __m512i p2 = _mm512_unpacklo_epi8(upper, zero);
    const __m512i p3 = _mm512_unpackhi_epi8(upper, zero);
    high0 = _mm512_dpwssd_epi32(high0, p0, high);
    high1 = _mm512_dpwssd_epi32(high1, p1, high);
    high2 = _mm512_dpwssd_epi32(high2, p2, high);
    high3 = _mm512_dpwssd_epi32(high3, p3, high);
    low0 = _mm512_dpwssd_epi32(low0, p0, low);
    low1 = _mm512_dpwssd_epi32(low1, p1, low);
    low2 = _mm512_dpwssd_epi32(low2, p2, low);
    low3 = _mm512_dpwssd_epi32(low3, p3, low);
  }
  return pack(finish(high0, low0), finish(high1, low1), finish(high2, low2), finish(high3, low3));
}

template <int kPairs>
SPDLD_AVX512 void blend(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                        std::size_t bytes, std::uint8_t* out) {
  std::size_t x = 0;
  for (; x + kVectorBytes <= bytes; x += kVectorBytes) {
    _mm512_storeu_si512(out + x, blend_vector<kPairs>(rows, weights, pairs, x));
  }
  if (x == bytes) return;
  const __m512i last = blend_vector<kPairs>(rows, weights, pairs, x);
  _mm512_mask_storeu_epi8(out + x, (std::uint64_t{1} << (bytes - x)) - 1, last);
}

}  // namespace

bool available() { return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0; }

SPDLD_AVX512 void plan_group(const std::int32_t* const weights[kColumnGroup],
                             const std::int32_t from[kColumnGroup], int quads,
                             WindowVector* patterns, WindowVector* digits) {
  // Four taps, channel by channel; the fourth channel is not looked at.
  const __m128i quad_bytes = _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 0, 0, 0, 0);
  // With 128 added to each digit of a weight, its digits are its bytes.
  const __m512i bias = _mm512_set1_epi32(0x808080);
  const __m512i sign = _mm512_set1_epi8(-128);
  const __m512i low_bytes = _mm512_set1_epi32(0x0c080400);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      const __m128i start = _mm_set1_epi8(static_cast<char>(from[4 * j + i]));
      _mm_store_si128(reinterpret_cast<__m128i*>(patterns[i].bytes + j * 16),
                      _mm_add_epi8(quad_bytes, start));
    }
    for (int quad = 0; quad < quads; ++quad) {
      alignas(64) std::int32_t taps[16];
      for (std::size_t j = 0; j < 4; ++j) {
        std::memcpy(taps + 4 * j, weights[4 * j + i] + 4 * quad, 16);
      }
      const __m512i biased = _mm512_xor_si512(_mm512_add_epi32(load(taps), bias), sign);
      WindowVector* const out = digits + (static_cast<std::size_t>(quad) * 4 + i) * kDigits;
      for (std::size_t digit = 0; digit < kDigits; ++digit) {
        const __m512i bytes =
            _mm512_add_epi8(low_bytes, _mm512_set1_epi8(static_cast<char>(digit)));
        _mm512_store_si512(out[digit].bytes, _mm512_shuffle_epi8(biased, bytes));
      }
    }
  }
}

void resize_row(const std::uint8_t* source, std::size_t row_bytes, const WindowTable& table,
                const RowTarget& target) {
  switch (table.quads) {
    case 1: return resize_groups<1>(source, row_bytes, table, target);
    case 2: return resize_groups<2>(source, row_bytes, table, target);
    default: return resize_groups<0>(source, row_bytes, table, target);
  }
}

void blend_rows(const std::uint8_t* const* rows, const WeightPair* weights, int pairs,
                std::size_t bytes, std::uint8_t* out) {
  switch (pairs) {
    case 1: return blend<1>(rows, weights, pairs, bytes, out);
    case 2: return blend<2>(rows, weights, pairs, bytes, out);
    case 3: return blend<3>(rows, weights, pairs, bytes, out);
    default: return blend<0>(rows, weights, pairs, bytes, out);
  }
}

#else

bool available() { return false; }

void plan_group(const std::int32_t* const[kColumnGroup], const std::int32_t[kColumnGroup], int,
                WindowVector*, WindowVector*) {
  SPDLD_CHECK(!"not on this machine");
}

void resize_row(const std::uint8_t*, std::size_t, const WindowTable&, const RowTarget&) {
  SPDLD_CHECK(!"not on this machine");
}

void blend_rows(const std::uint8_t* const*, const WeightPair*, int, std::size_t, std::uint8_t*) {
  SPDLD_CHECK(!"not on this machine");
}

#endif

}  // namespace spdld::transform::avx512

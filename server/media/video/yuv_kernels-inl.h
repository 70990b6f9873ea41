// SPDX-License-Identifier: Apache-2.0
// Included by yuv_kernels.cpp once for each instruction set.
#if defined(SPDLD_MEDIA_YUV_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_YUV_KERNELS_INL_H_
#undef SPDLD_MEDIA_YUV_KERNELS_INL_H_
#else
#define SPDLD_MEDIA_YUV_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "media/video/yuv_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that bytes of as many lanes fit one block.
using D32 = hn::CappedTag<std::int32_t, 16>;
using V32 = hn::Vec<D32>;
using DBytes = hn::Rebind<std::uint8_t, D32>;
using DChroma = hn::Rebind<Chroma, D32>;
using D16 = hn::ScalableTag<Chroma>;

template <typename Sample>
HWY_INLINE V32 load(const Sample* from) {
  return hn::PromoteTo(D32(), hn::LoadU(hn::Rebind<Sample, D32>(), from));
}

// ------------------------------ mean_chroma

inline Chroma mean_byte(std::uint8_t a, std::uint8_t b) {
  return static_cast<Chroma>((a + b - 256) * 32);
}

inline void mean_bytes(const std::uint8_t* a, const std::uint8_t* b, std::size_t count,
                       Chroma* out) {
  const std::size_t lanes = hn::Lanes(D32());
  const V32 gray = hn::Set(D32(), 256);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V32 sum = hn::Sub(hn::Add(load(a + i), load(b + i)), gray);
    hn::StoreU(hn::DemoteTo(DChroma(), hn::ShiftLeft<5>(sum)), DChroma(), out + i);
  }
  for (; i < count; ++i) out[i] = mean_byte(a[i], b[i]);
}

// Samples of 9 to 16 bits give (a + b - 2 * gray) * 2^(13 - bits), rounded down.
inline void mean_words(const std::uint16_t* a, const std::uint16_t* b, std::size_t count, int bits,
                       Chroma* out) {
  const std::size_t lanes = hn::Lanes(D32());
  const std::int32_t gray = std::int32_t{1} << bits;
  const std::int32_t factor = std::int32_t{1} << (16 - bits);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V32 sum = hn::Sub(hn::Add(load(a + i), load(b + i)), hn::Set(D32(), gray));
    const V32 scaled = hn::ShiftRight<3>(hn::Mul(sum, hn::Set(D32(), factor)));
    hn::StoreU(hn::DemoteTo(DChroma(), scaled), DChroma(), out + i);
  }
  for (; i < count; ++i) {
    const std::int32_t scaled = ((a[i] + b[i] - gray) * factor) >> 3;
    out[i] = static_cast<Chroma>(std::clamp<std::int32_t>(scaled, INT16_MIN, INT16_MAX));
  }
}

// ------------------------------ double_left, double_centered

inline void double_left(const Chroma* in, std::size_t count, Chroma* out) {
  const D16 d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto here = hn::LoadU(d, in + i);
    const auto next = hn::LoadU(d, in + i + 1);
    const auto half = hn::ShiftRight<1>(hn::Add(hn::Add(here, next), hn::Set(d, 1)));
    hn::StoreInterleaved2(here, half, d, out + 2 * i);
  }
  for (; i < count; ++i) {
    out[2 * i] = in[i];
    out[2 * i + 1] = static_cast<Chroma>((in[i] + in[i + 1] + 1) >> 1);
  }
}

inline void double_centered(const Chroma* in, std::size_t count, Chroma* out) {
  const D16 d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto here = hn::LoadU(d, in + i);
    const auto most = hn::Add(hn::Add(here, hn::Add(here, here)), hn::Set(d, 2));
    const auto first = hn::ShiftRight<2>(hn::Add(most, hn::LoadU(d, in + i - 1)));
    const auto second = hn::ShiftRight<2>(hn::Add(most, hn::LoadU(d, in + i + 1)));
    hn::StoreInterleaved2(first, second, d, out + 2 * i);
  }
  for (; i < count; ++i) {
    out[2 * i] = static_cast<Chroma>((3 * in[i] + 2 + (in + i)[-1]) >> 2);
    out[2 * i + 1] = static_cast<Chroma>((3 * in[i] + 2 + in[i + 1]) >> 2);
  }
}

// ------------------------------ yuv_to_rgb, luma_to_bytes

inline std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> ColorMatrix::kShift, 0, 255));
}

HWY_INLINE hn::Vec<DBytes> to_bytes(V32 sum) {
  return hn::DemoteTo(DBytes(), hn::ShiftRight<ColorMatrix::kShift>(sum));
}

template <typename Sample>
HWY_INLINE void to_rgb(const Sample* luma, const Chroma* u, const Chroma* v, std::size_t count,
                       const ColorMatrix& matrix, std::uint8_t* out) {
  const std::size_t lanes = hn::Lanes(D32());
  const V32 by_luma = hn::Set(D32(), matrix.luma);
  const V32 offset = hn::Set(D32(), matrix.offset);
  const V32 v_to_red = hn::Set(D32(), matrix.v_to_red);
  const V32 u_to_green = hn::Set(D32(), matrix.u_to_green);
  const V32 v_to_green = hn::Set(D32(), matrix.v_to_green);
  const V32 u_to_blue = hn::Set(D32(), matrix.u_to_blue);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V32 y = hn::Add(hn::Mul(load(luma + i), by_luma), offset);
    const V32 blue = load(u + i);
    const V32 red = load(v + i);
    hn::StoreInterleaved3(
        to_bytes(hn::Add(y, hn::Mul(red, v_to_red))),
        to_bytes(hn::Add(y, hn::Add(hn::Mul(blue, u_to_green), hn::Mul(red, v_to_green)))),
        to_bytes(hn::Add(y, hn::Mul(blue, u_to_blue))), DBytes(), out + 3 * i);
  }
  for (; i < count; ++i) {
    const std::int32_t y = luma[i] * matrix.luma + matrix.offset;
    out[3 * i] = to_byte(y + v[i] * matrix.v_to_red);
    out[3 * i + 1] = to_byte(y + (u[i] * matrix.u_to_green + v[i] * matrix.v_to_green));
    out[3 * i + 2] = to_byte(y + u[i] * matrix.u_to_blue);
  }
}

template <typename Sample>
HWY_INLINE void to_gray(const Sample* luma, std::size_t count, const ColorMatrix& matrix,
                        std::uint8_t* out) {
  const std::size_t lanes = hn::Lanes(D32());
  const V32 by_luma = hn::Set(D32(), matrix.luma);
  const V32 offset = hn::Set(D32(), matrix.offset);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V32 y = hn::Add(hn::Mul(load(luma + i), by_luma), offset);
    hn::StoreU(to_bytes(y), DBytes(), out + i);
  }
  for (; i < count; ++i) out[i] = to_byte(luma[i] * matrix.luma + matrix.offset);
}

inline void bytes_to_rgb(const std::uint8_t* luma, const Chroma* u, const Chroma* v,
                         std::size_t count, const ColorMatrix& matrix, std::uint8_t* out) {
  to_rgb(luma, u, v, count, matrix, out);
}

inline void words_to_rgb(const std::uint16_t* luma, const Chroma* u, const Chroma* v,
                         std::size_t count, const ColorMatrix& matrix, std::uint8_t* out) {
  to_rgb(luma, u, v, count, matrix, out);
}

inline void bytes_to_gray(const std::uint8_t* luma, std::size_t count, const ColorMatrix& matrix,
                          std::uint8_t* out) {
  to_gray(luma, count, matrix, out);
}

inline void words_to_gray(const std::uint16_t* luma, std::size_t count, const ColorMatrix& matrix,
                          std::uint8_t* out) {
  to_gray(luma, count, matrix, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

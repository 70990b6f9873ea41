// SPDX-License-Identifier: Apache-2.0
// Included by jpeg_kernels.cpp once for each instruction set: chroma of full size, and colours.
#if defined(SPDLD_MEDIA_JPEG_PIXELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_JPEG_PIXELS_INL_H_
#undef SPDLD_MEDIA_JPEG_PIXELS_INL_H_
#else
#define SPDLD_MEDIA_JPEG_PIXELS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "media/jpeg/jpeg_kernels.h"
#include "media/jpeg/jpeg_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

constexpr std::int16_t k0228 = 14942, k0285 = 18734, k0344 = 22554, k0402 = 26345;  // of 2^16

#if HWY_TARGET == HWY_SCALAR

// ------------------------------ upsample_h2v1, upsample_h2v2

inline void upsample_h2v1(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[2 * i] = static_cast<std::uint8_t>((3 * in[i] + (in + i)[-1] + 1) >> 2);
    out[2 * i + 1] = static_cast<std::uint8_t>((3 * in[i] + in[i + 1] + 2) >> 2);
  }
}

inline void upsample_h2v2(const std::uint8_t* near, const std::uint8_t* far, std::size_t count,
                          std::uint8_t* out) {
  const auto column = [&](std::ptrdiff_t at) { return 3 * near[at] + far[at]; };
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    out[2 * i] = static_cast<std::uint8_t>((3 * column(at) + column(at - 1) + 8) >> 4);
    out[2 * i + 1] = static_cast<std::uint8_t>((3 * column(at) + column(at + 1) + 7) >> 4);
  }
}

// ------------------------------ ycc_to_rgb

inline void ycc_to_rgb(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                       std::size_t count, std::uint8_t* out) {
  const auto byte = [](int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); };
  for (std::size_t i = 0; i < count; ++i) {
    const int b = cb[i] - 128, r = cr[i] - 128;
    out[3 * i] = byte(y[i] + r + ((((2 * r * k0402) >> 16) + 1) >> 1));
    out[3 * i + 1] = byte(y[i] - r + ((r * k0285 - b * k0344 + (1 << 15)) >> 16));
    out[3 * i + 2] = byte(y[i] + 2 * b + ((((2 * b * -k0228) >> 16) + 1) >> 1));
  }
}

#else

// ------------------------------ upsample_h2v1, upsample_h2v2

using DSample = hn::CappedTag<std::uint8_t, 32>;
using DSum = hn::RepartitionToWide<DSample>;
using DHalf = hn::Half<DSample>;

HWY_INLINE hn::Vec<DSum> load_sums(const std::uint8_t* from) {
  return hn::PromoteTo(DSum(), hn::LoadU(DHalf(), from));
}

// Two samples side by side of each lane.
HWY_INLINE void store_pairs(hn::Vec<DSum> even, hn::Vec<DSum> odd, std::uint8_t* out) {
  hn::StoreU(hn::BitCast(DSample(), hn::Or(even, hn::ShiftLeft<8>(odd))), DSample(), out);
}

inline void upsample_h2v1(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  const std::size_t lanes = hn::Lanes(DSum());
  for (std::size_t i = 0; i < count; i += lanes) {
    const auto here = load_sums(in + i);
    const auto three = hn::Add(here, hn::Add(here, here));
    const auto even = hn::Add(hn::Add(three, load_sums(in + i - 1)), hn::Set(DSum(), 1));
    const auto odd = hn::Add(hn::Add(three, load_sums(in + i + 1)), hn::Set(DSum(), 2));
    store_pairs(hn::ShiftRight<2>(even), hn::ShiftRight<2>(odd), out + 2 * i);
  }
}

inline void upsample_h2v2(const std::uint8_t* near, const std::uint8_t* far, std::size_t count,
                          std::uint8_t* out) {
  const std::size_t lanes = hn::Lanes(DSum());
  const auto column = [](const std::uint8_t* in_near, const std::uint8_t* in_far) {
    const auto value = load_sums(in_near);
    return hn::Add(hn::Add(value, hn::Add(value, value)), load_sums(in_far));
  };
  for (std::size_t i = 0; i < count; i += lanes) {
    const auto here = column(near + i, far + i);
    const auto three = hn::Add(here, hn::Add(here, here));
    const auto before = column(near + i - 1, far + i - 1);
    const auto behind = column(near + i + 1, far + i + 1);
    const auto even = hn::Add(hn::Add(three, before), hn::Set(DSum(), 8));
    const auto odd = hn::Add(hn::Add(three, behind), hn::Set(DSum(), 7));
    store_pairs(hn::ShiftRight<4>(even), hn::ShiftRight<4>(odd), out + 2 * i);
  }
}

// ------------------------------ ycc_to_rgb

// Whole vectors of AVX-512 where their bytes can be permuted.
using DColour = hn::CappedTag<std::int16_t, HWY_TARGET <= HWY_AVX3_DL ? 32 : 16>;
using DPixels = hn::Repartition<std::uint8_t, DColour>;
using VColour = hn::Vec<DColour>;
using VPixels = hn::Vec<DPixels>;

#if HWY_TARGET <= HWY_AVX3_DL

// How three vectors of 64 samples become 64 pixels: where in red and green, one behind the other,
// and then where in blue, each byte of three vectors is.
struct Interleaving {
  alignas(64) std::uint8_t red_green[3][64] = {};
  alignas(64) std::uint8_t blue[3][64] = {};
  std::uint64_t is_blue[3] = {};
};
constexpr Interleaving interleaving() {
  Interleaving all;
  for (std::size_t byte = 0; byte < 192; ++byte) {
    const auto sample = static_cast<std::uint8_t>(byte / 3);
    all.red_green[byte / 64][byte % 64] = static_cast<std::uint8_t>(sample + byte % 3 % 2 * 64);
    all.blue[byte / 64][byte % 64] = sample;
    all.is_blue[byte / 64] |= std::uint64_t{byte % 3 == 2} << byte % 64;
  }
  return all;
}
constexpr Interleaving kInterleaving = interleaving();

HWY_INLINE void store_pixels(VPixels red, VPixels green, VPixels blue, std::uint8_t* out) {
  const DPixels d;
  HWY_UNROLL(3)
  for (std::size_t i = 0; i < 3; ++i) {
    const VPixels from = hn::Load(d, kInterleaving.red_green[i]);
    const VPixels from_blue = hn::Load(d, kInterleaving.blue[i]);
    const __m512i both = _mm512_permutex2var_epi8(red.raw, from.raw, green.raw);
    hn::StoreU(VPixels{_mm512_mask_permutexvar_epi8(both, kInterleaving.is_blue[i], from_blue.raw,
                                                    blue.raw)},
               d, out + 64 * i);
  }
}

#else

// How three vectors of 16 samples become 16 pixels: a shuffle brings each sample to its place in
// one of three vectors, and no two samples of one colour are at the same place.
struct Interleaving {
  alignas(16) std::uint8_t lanes[3][16] = {};    // of each colour: which sample goes there
  alignas(16) std::uint8_t colours[3][16] = {};  // of each vector: whose sample is there
};
constexpr Interleaving interleaving() {
  Interleaving all;
  for (std::size_t byte = 0; byte < 48; ++byte) {
    all.lanes[byte % 3][byte % 16] = static_cast<std::uint8_t>(byte / 3);
    all.colours[byte / 16][byte % 16] = static_cast<std::uint8_t>(byte % 3);
  }
  return all;
}
constexpr Interleaving kInterleaving = interleaving();

// Each 16 bytes of a vector, 48 bytes apart.
template <class D>
HWY_INLINE void store_apart(D d, hn::Vec<D> bytes, std::uint8_t* out) {
  if constexpr (hn::MaxLanes(d) == 16) {
    hn::StoreU(bytes, d, out);
  } else {
    const hn::Half<D> half;
    store_apart(half, hn::LowerHalf(half, bytes), out);
    store_apart(half, hn::UpperHalf(half, bytes), out + hn::MaxLanes(half) * 3);
  }
}

HWY_INLINE void store_pixels(VPixels red, VPixels green, VPixels blue, std::uint8_t* out) {
  const DPixels d;
  const auto placed = [&](VPixels samples, std::size_t colour) {
    return hn::TableLookupBytes(samples, hn::LoadDup128(d, kInterleaving.lanes[colour]));
  };
  const VPixels r = placed(red, 0), g = placed(green, 1), b = placed(blue, 2);
  HWY_UNROLL(3)
  for (std::size_t i = 0; i < 3; ++i) {
    const VPixels colours = hn::LoadDup128(d, kInterleaving.colours[i]);
    const VPixels others = hn::IfThenElse(hn::Eq(colours, hn::Set(d, 1)), g, b);
    store_apart(d, hn::IfThenElse(hn::Eq(colours, hn::Zero(d)), r, others), out + 16 * i);
  }
}

#endif  // HWY_TARGET <= HWY_AVX3_DL

struct Colours {
  VColour red;
  VColour green;
  VColour blue;
};

// `b` and `r` are around 0.
HWY_INLINE Colours colours_of(VColour luma, VColour b, VColour r) {
  using DProducts = hn::RepartitionToWide<DColour>;
  const DColour d;
  const auto one = hn::Set(d, std::int16_t{1});
  const auto by_both = hn::BitCast(
      d, hn::Set(DProducts(), static_cast<std::int32_t>(std::uint32_t{k0285} << 16 |
                                                        static_cast<std::uint16_t>(-k0344))));
  const auto half = hn::Set(DProducts(), 1 << 15);
  // x * by / 2^16, rounded.
  const auto times = [&](auto x, std::int16_t by) {
    return hn::ShiftRight<1>(hn::Add(hn::MulHigh(hn::Add(x, x), hn::Set(d, by)), one));
  };
  const auto blue =
      hn::Add(hn::Add(times(b, static_cast<std::int16_t>(-k0228)), hn::Add(b, b)), luma);
  const auto red = hn::Add(hn::Add(times(r, k0402), r), luma);
  const auto low = pair_products(DProducts(), hn::InterleaveLower(d, b, r), by_both);
  const auto high = pair_products(DProducts(), hn::InterleaveUpper(d, b, r), by_both);
  const auto both = hn::ReorderDemote2To(d, hn::ShiftRight<16>(hn::Add(low, half)),
                                         hn::ShiftRight<16>(hn::Add(high, half)));
  return {red, hn::Add(hn::Sub(both, r), luma), blue};
}

inline void ycc_to_rgb(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                       std::size_t count, std::uint8_t* out) {
  const DPixels d;
  const DColour d16;
  const auto zero = hn::Zero(d);
  const auto lower = [&](VPixels v) { return hn::BitCast(d16, hn::InterleaveLower(d, v, zero)); };
  const auto upper = [&](VPixels v) { return hn::BitCast(d16, hn::InterleaveUpper(d, v, zero)); };
  const auto center = hn::Set(d16, std::int16_t{128});
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += lanes) {
    const auto luma = hn::LoadU(d, y + i), b = hn::LoadU(d, cb + i), r = hn::LoadU(d, cr + i);
    const Colours low =
        colours_of(lower(luma), hn::Sub(lower(b), center), hn::Sub(lower(r), center));
    const Colours high =
        colours_of(upper(luma), hn::Sub(upper(b), center), hn::Sub(upper(r), center));
    store_pixels(in_bytes(d, low.red, high.red), in_bytes(d, low.green, high.green),
                 in_bytes(d, low.blue, high.blue), out + 3 * i);
  }
}

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_JPEG_PIXELS_INL_H_

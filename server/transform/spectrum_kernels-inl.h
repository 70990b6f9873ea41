// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set: see spectrum_kernels.cpp.
#if defined(SPDLD_TRANSFORM_SPECTRUM_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_TRANSFORM_SPECTRUM_KERNELS_INL_H_
#undef SPDLD_TRANSFORM_SPECTRUM_KERNELS_INL_H_
#else
#define SPDLD_TRANSFORM_SPECTRUM_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "transform/spectrum_plan.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lane l of every vector belongs to frame l.
using FrameTag = hn::CappedTag<float, kMaxFrames>;
using FrameVec = hn::Vec<FrameTag>;

struct Complex {
  FrameVec re;
  FrameVec im;
};

HWY_INLINE Complex operator+(Complex a, Complex b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
HWY_INLINE Complex operator-(Complex a, Complex b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
HWY_INLINE Complex scaled(Complex a, float factor) {
  const auto f = hn::Set(FrameTag(), factor);
  return {hn::Mul(a.re, f), hn::Mul(a.im, f)};
}
// a times -i
HWY_INLINE Complex turned(Complex a) { return {a.im, hn::Neg(a.re)}; }

HWY_INLINE Complex multiplied(Complex a, const float* root) {
  const auto c = hn::Set(FrameTag(), root[0]);
  const auto s = hn::Set(FrameTag(), root[1]);
  return {hn::Sub(hn::Mul(a.re, c), hn::Mul(a.im, s)), hn::Add(hn::Mul(a.re, s), hn::Mul(a.im, c))};
}

// Complex vectors, real parts and imaginary parts apart.
struct Spectrum {
  float* re;
  float* im;

  HWY_INLINE Complex load(std::size_t i) const {
    const FrameTag d;
    return {hn::Load(d, re + i * hn::Lanes(d)), hn::Load(d, im + i * hn::Lanes(d))};
  }
  HWY_INLINE void store(std::size_t i, Complex value) const {
    const FrameTag d;
    hn::Store(value.re, d, re + i * hn::Lanes(d));
    hn::Store(value.im, d, im + i * hn::Lanes(d));
  }
};

template <int kRadix>
struct Butterfly;

template <>
struct Butterfly<2> {
  static HWY_INLINE void run(Complex (&x)[2]) {
    const Complex sum = x[0] + x[1];
    x[1] = x[0] - x[1];
    x[0] = sum;
  }
};

template <>
struct Butterfly<3> {
  static HWY_INLINE void run(Complex (&x)[3]) {
    const Complex sum = x[1] + x[2];
    const Complex odd = turned(scaled(x[1] - x[2], 0.866025404F));
    const Complex even = x[0] - scaled(sum, 0.5F);
    x[0] = x[0] + sum;
    x[1] = even + odd;
    x[2] = even - odd;
  }
};

template <>
struct Butterfly<4> {
  static HWY_INLINE void run(Complex (&x)[4]) {
    const Complex sum02 = x[0] + x[2];
    const Complex diff02 = x[0] - x[2];
    const Complex sum13 = x[1] + x[3];
    const Complex diff13 = turned(x[1] - x[3]);
    x[0] = sum02 + sum13;
    x[1] = diff02 + diff13;
    x[2] = sum02 - sum13;
    x[3] = diff02 - diff13;
  }
};

template <>
struct Butterfly<5> {
  static HWY_INLINE void run(Complex (&x)[5]) {
    constexpr float kCos1 = 0.309016994F;
    constexpr float kCos2 = -0.809016994F;
    constexpr float kSin1 = 0.951056516F;
    constexpr float kSin2 = 0.587785252F;
    const Complex sum14 = x[1] + x[4];
    const Complex sum23 = x[2] + x[3];
    const Complex diff14 = x[1] - x[4];
    const Complex diff23 = x[2] - x[3];
    const Complex even1 = x[0] + scaled(sum14, kCos1) + scaled(sum23, kCos2);
    const Complex even2 = x[0] + scaled(sum14, kCos2) + scaled(sum23, kCos1);
    const Complex odd1 = turned(scaled(diff14, kSin1) + scaled(diff23, kSin2));
    const Complex odd2 = turned(scaled(diff14, kSin2) - scaled(diff23, kSin1));
    x[0] = x[0] + sum14 + sum23;
    x[1] = even1 + odd1;
    x[2] = even2 + odd2;
    x[3] = even2 - odd2;
    x[4] = even1 - odd1;
  }
};

// y[q + s (r p + j)] = w^(p j) sum over k of x[q + s (p + m k)] e^(-2 pi i j k / r), where s is
// pass.stride, r pass.radix, m pass.blocks and w = e^(-2 pi i / (r m)).
template <int kRadix>
HWY_INLINE void radix_pass(const FourierPass& pass, const float* twiddles, Spectrum x, Spectrum y) {
  const auto blocks = static_cast<std::size_t>(pass.blocks);
  const auto stride = static_cast<std::size_t>(pass.stride);
  for (std::size_t p = 0; p < blocks; ++p, twiddles += 2 * (kRadix - 1)) {
    for (std::size_t q = 0; q < stride; ++q) {
      Complex values[kRadix];
      HWY_UNROLL(5)
      for (std::size_t k = 0; k < kRadix; ++k) values[k] = x.load(q + stride * (p + blocks * k));
      Butterfly<kRadix>::run(values);
      const std::size_t to = q + stride * kRadix * p;
      y.store(to, values[0]);
      HWY_UNROLL(5)
      for (std::size_t j = 1; j < kRadix; ++j)
        y.store(to + stride * j,
                p == 0 ? values[j] : multiplied(values[j], twiddles + 2 * (j - 1)));
    }
  }
}

HWY_INLINE void any_pass(const FourierPass& pass, const float* twiddles, Spectrum x, Spectrum y) {
  const auto radix = static_cast<std::size_t>(pass.radix);
  const auto blocks = static_cast<std::size_t>(pass.blocks);
  const auto stride = static_cast<std::size_t>(pass.stride);
  const float* const roots = twiddles;
  twiddles += 2 * radix;
  for (std::size_t p = 0; p < blocks; ++p, twiddles += 2 * (radix - 1)) {
    for (std::size_t q = 0; q < stride; ++q) {
      for (std::size_t j = 0; j < radix; ++j) {
        Complex sum = x.load(q + stride * p);
        for (std::size_t k = 1; k < radix; ++k)
          sum =
              sum + multiplied(x.load(q + stride * (p + blocks * k)), roots + 2 * (j * k % radix));
        if (j > 0) sum = multiplied(sum, twiddles + 2 * (j - 1));
        y.store(q + stride * (radix * p + j), sum);
      }
    }
  }
}

// Transforms x; the result is in x or in y, and where it is not is free. Returns where it is.
HWY_INLINE Spectrum transform(const FourierPlan& plan, Spectrum x, Spectrum y) {
  for (const FourierPass& pass : plan.passes) {
    const float* const twiddles = plan.twiddles.data() + pass.twiddles;
    switch (pass.radix) {
      case 1: continue;
      case 2: radix_pass<2>(pass, twiddles, x, y); break;
      case 3: radix_pass<3>(pass, twiddles, x, y); break;
      case 4: radix_pass<4>(pass, twiddles, x, y); break;
      case 5: radix_pass<5>(pass, twiddles, x, y); break;
      default: any_pass(pass, twiddles, x, y);
    }
    std::swap(x, y);
  }
  return x;
}

#if HWY_TARGET != HWY_SCALAR
// Four samples, from `at` on, of every fourth frame: block b of the vector holds those of frame 4
// b.
template <class D>
HWY_INLINE hn::Vec<D> load_quads(D d, const float* const* frames, std::size_t at) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    return hn::Combine(d, load_quads(half, frames + hn::MaxLanes(half), at),
                       load_quads(half, frames, at));
  } else {
    return hn::LoadU(d, frames[0] + at);
  }
}
#endif

// The windowed samples of all frames: even ones as real parts, odd ones as imaginary parts.
HWY_INLINE void load_frames(const SpectrumPlan& plan, const float* const* frames, Spectrum x) {
  const FrameTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto length = static_cast<std::size_t>(plan.fourier.length);
  const float* const window = plan.window.data();
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::RepartitionToWide<FrameTag> dw;
  for (; i + 4 <= length; i += 4) {
    // Blocks of four by four, of which each is transposed.
    const auto r0 = load_quads(d, frames, i);
    const auto r1 = load_quads(d, frames + 1, i);
    const auto r2 = load_quads(d, frames + 2, i);
    const auto r3 = load_quads(d, frames + 3, i);
    const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
    const auto windowed = [&](auto samples, std::size_t at) HWY_ATTR {
      return hn::Mul(hn::BitCast(d, samples), hn::Set(d, window[at]));
    };
    x.store(i / 2, {windowed(hn::InterleaveLower(dw, low01, low23), i),
                    windowed(hn::InterleaveUpper(dw, low01, low23), i + 1)});
    x.store(i / 2 + 1, {windowed(hn::InterleaveLower(dw, high01, high23), i + 2),
                        windowed(hn::InterleaveUpper(dw, high01, high23), i + 3)});
  }
#endif
  for (; i < length; i += 2) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      x.re[i / 2 * lanes + lane] = frames[lane][i] * window[i];
      x.im[i / 2 * lanes + lane] = frames[lane][i + 1] * window[i + 1];
    }
  }
}

// The bins of the real transform, out of the complex one of half its length: magnitudes, or their
// squares.
HWY_INLINE void real_bins(const SpectrumPlan& plan, Spectrum z, float* out) {
  const FrameTag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto half = static_cast<std::size_t>(plan.fourier.length / 2);
  const auto store = [&](std::size_t bin, Complex value) HWY_ATTR {
    const auto power = hn::Add(hn::Mul(value.re, value.re), hn::Mul(value.im, value.im));
    hn::Store(plan.magnitude ? hn::Sqrt(power) : power, d, out + bin * lanes);
  };
  for (std::size_t bin = 0; bin <= half / 2; ++bin) {
    const Complex a = z.load(bin);
    const Complex b = z.load(bin == 0 ? 0 : half - bin);
    const Complex even{hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
    const Complex odd{hn::Add(a.im, b.im), hn::Sub(b.re, a.re)};
    const Complex rotated = multiplied(odd, plan.fourier.half_twiddles.data() + 2 * bin);
    store(bin, even + rotated);
    store(half - bin, even - rotated);
  }
}

// Natural logarithm of a normal number, as Cephes has it: within 1e-7 of the exact one, or of its
// size.
template <class D>
HWY_INLINE hn::Vec<D> natural_log(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto one = hn::Set(d, 1.0F);
  const auto bits = hn::BitCast(di, x);
  auto exponent = hn::ConvertTo(d, hn::Sub(hn::ShiftRight<23>(bits), hn::Set(di, 126)));
  // In [0.5, 1).
  auto m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f000000)));
  const auto small = hn::Lt(m, hn::Set(d, 0.707106781F));
  exponent = hn::Sub(exponent, hn::IfThenElseZero(small, one));
  m = hn::Sub(hn::Add(m, hn::IfThenElseZero(small, m)), one);
  constexpr float kTerms[] = {-1.1514610310e-1F, 1.1676998740e-1F,  -1.2420140846e-1F,
                              1.4249322787e-1F,  -1.6668057665e-1F, 2.0000714765e-1F,
                              -2.4999993993e-1F, 3.3333331174e-1F};
  auto sum = hn::Set(d, 7.0376836292e-2F);
  for (const float term : kTerms) sum = hn::Add(hn::Mul(sum, m), hn::Set(d, term));
  const auto square = hn::Mul(m, m);
  auto y = hn::Mul(hn::Mul(sum, m), square);
  y = hn::Add(y, hn::Mul(exponent, hn::Set(d, -2.12194440e-4F)));
  y = hn::Sub(y, hn::Mul(square, hn::Set(d, 0.5F)));
  return hn::Add(hn::Add(m, y), hn::Mul(exponent, hn::Set(d, 0.693359375F)));
}

template <class D>
HWY_INLINE hn::Vec<D> log_of(D d, const LogScale& scale, hn::Vec<D> x) {
  const auto floored = hn::Max(hn::Add(x, hn::Set(d, scale.add)), hn::Set(d, scale.floor));
  return hn::Mul(natural_log(d, floored), hn::Set(d, scale.factor));
}

template <class D>
HWY_INLINE void store_some(D d, hn::Vec<D> values, float* out, std::size_t count) {
  if (count == hn::Lanes(d)) return hn::StoreU(values, d, out);
  HWY_ALIGN float whole[kMaxFrames];
  hn::Store(values, d, whole);
  for (std::size_t i = 0; i < count; ++i) out[i] = whole[i];
}

template <class D>
HWY_INLINE hn::Vec<D> load_some(D d, const float* from, std::size_t count) {
  if (count == hn::Lanes(d)) return hn::LoadU(d, from);
  HWY_ALIGN float whole[kMaxFrames] = {};
  for (std::size_t i = 0; i < count; ++i) whole[i] = from[i];
  return hn::Load(d, whole);
}

HWY_INLINE void sum_bands(const SpectrumPlan& plan, const float* bins, const auto& row) {
  const FrameTag d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t r = 0; r < plan.bands.size(); ++r) {
    const Band& band = plan.bands[r];
    const float* const weights = plan.weights.data() + band.weights;
    const float* const first = bins + static_cast<std::size_t>(band.first) * lanes;
    auto sum = hn::Zero(d);
    for (std::size_t i = 0; i < static_cast<std::size_t>(band.count); ++i)
      sum = hn::Add(sum, hn::Mul(hn::Load(d, first + i * lanes), hn::Set(d, weights[i])));
    row(r, sum);
  }
}

inline bool transform_frames(const SpectrumPlan& plan, const float* samples, std::size_t hop,
                             std::size_t frames, float* scratch, float* out, std::size_t row_stride,
                             float& largest) {
  const FrameTag d;
  const std::size_t lanes = hn::Lanes(d);
  // Lanes without a frame do the last one again.
  const float* begins[kMaxFrames];
  for (std::size_t lane = 0; lane < lanes; ++lane)
    begins[lane] = samples + std::min(lane, frames - 1) * hop;
  const auto half = static_cast<std::size_t>(plan.fourier.length / 2) * lanes;
  const Spectrum x{scratch, scratch + half};
  const Spectrum y{scratch + 2 * half, scratch + 3 * half};
  load_frames(plan, begins, x);
  const Spectrum z = transform(plan.fourier, x, y);
  // The bins need one vector more than half of a spectrum has.
  float* const bins = z.re == scratch ? scratch + 2 * half : scratch;
  const auto edge = z.load(0);
  real_bins(plan, z, bins);

  FrameVec most = hn::Set(d, largest);
  const auto row = [&](std::size_t r, FrameVec values) HWY_ATTR {
    if (plan.log) values = log_of(d, plan.log_scale, values);
    most = hn::Max(most, values);
    store_some(d, values, out + r * row_stride, frames);
  };
  if (plan.bands.empty()) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(plan.fourier.bins()); ++r)
      row(r, hn::Load(d, bins + r * lanes));
  } else {
    sum_bands(plan, bins, row);
  }
  HWY_ALIGN float lane_most[kMaxFrames];
  hn::Store(most, d, lane_most);
  for (std::size_t lane = 0; lane < lanes; ++lane) largest = std::max(largest, lane_most[lane]);
  // A sample that is no finite number is part of the sum that bin 0 is, and makes it none either.
  const auto sum = hn::Add(edge.re, edge.im);
  const auto difference = hn::Sub(sum, sum);
  return hn::AllTrue(d, hn::Eq(difference, hn::Zero(d)));
}

inline std::size_t frame_lanes() { return hn::Lanes(FrameTag()); }

inline float log_values(const LogScale& scale, float* values, std::size_t count, float largest) {
  const FrameTag d;
  auto most = hn::Set(d, largest);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const std::size_t some = std::min(hn::Lanes(d), count - i);
    // What fills up the last vector is 0, whose logarithm is the least.
    const auto changed = log_of(d, scale, load_some(d, values + i, some));
    most = hn::Max(most, changed);
    store_some(d, changed, values + i, some);
  }
  HWY_ALIGN float lane_most[kMaxFrames];
  hn::Store(most, d, lane_most);
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane)
    largest = std::max(largest, lane_most[lane]);
  return largest;
}

inline void floor_values(float* values, std::size_t count, float floor, float add, float factor) {
  const FrameTag d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const std::size_t some = std::min(hn::Lanes(d), count - i);
    const auto floored = hn::Max(load_some(d, values + i, some), hn::Set(d, floor));
    store_some(d, hn::Mul(hn::Add(floored, hn::Set(d, add)), hn::Set(d, factor)), values + i, some);
  }
}

inline void multiply_rows(const float* matrix, std::size_t rows, std::size_t inner, const float* in,
                          float* out, std::size_t count) {
  const FrameTag d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const std::size_t some = std::min(hn::Lanes(d), count - i);
    std::size_t k = 0;
    for (; k + 4 <= rows; k += 4) {
      const float* const m = matrix + k * inner;
      auto sum0 = hn::Zero(d);
      auto sum1 = sum0;
      auto sum2 = sum0;
      auto sum3 = sum0;
      for (std::size_t j = 0; j < inner; ++j) {
        const auto value = load_some(d, in + j * count + i, some);
        sum0 = hn::Add(sum0, hn::Mul(value, hn::Set(d, m[j])));
        sum1 = hn::Add(sum1, hn::Mul(value, hn::Set(d, m[inner + j])));
        sum2 = hn::Add(sum2, hn::Mul(value, hn::Set(d, m[2 * inner + j])));
        sum3 = hn::Add(sum3, hn::Mul(value, hn::Set(d, m[3 * inner + j])));
      }
      store_some(d, sum0, out + k * count + i, some);
      store_some(d, sum1, out + (k + 1) * count + i, some);
      store_some(d, sum2, out + (k + 2) * count + i, some);
      store_some(d, sum3, out + (k + 3) * count + i, some);
    }
    for (; k < rows; ++k) {
      auto sum = hn::Zero(d);
      for (std::size_t j = 0; j < inner; ++j)
        sum = hn::Add(sum, hn::Mul(load_some(d, in + j * count + i, some),
                                   hn::Set(d, matrix[k * inner + j])));
      store_some(d, sum, out + k * count + i, some);
    }
  }
}

// Box and Muller's: a length of which the square is exponential, at a uniform angle.
inline void normal_numbers(const std::uint64_t* words, std::size_t count, float* out) {
  const FrameTag d;
  const hn::RebindToSigned<FrameTag> di;
  HWY_ALIGN std::int32_t high[kMaxFrames] = {};
  HWY_ALIGN std::int32_t low[kMaxFrames] = {};
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const std::size_t some = std::min(hn::Lanes(d), count - i);
    for (std::size_t lane = 0; lane < some; ++lane) {
      high[lane] = static_cast<std::int32_t>(words[i + lane] >> 40) + 1;
      low[lane] = static_cast<std::int32_t>(words[i + lane] & 0xffffff);
    }
    const auto unit = hn::Set(d, 0x1.0p-24F);
    const auto u = hn::Mul(hn::ConvertTo(d, hn::Load(di, high)), unit);     // (0, 1]
    const auto turns = hn::Mul(hn::ConvertTo(d, hn::Load(di, low)), unit);  // [0, 1)
    const auto length =
        hn::Sqrt(hn::Max(hn::Mul(natural_log(d, u), hn::Set(d, -2.0F)), hn::Zero(d)));
    // The quarter of the circle, and where in it, from its middle: Cephes' sine and cosine.
    const auto quarter = hn::ConvertTo(di, hn::Mul(turns, hn::Set(d, 4.0F)));
    const auto t = hn::Sub(hn::Sub(hn::Mul(turns, hn::Set(d, 4.0F)), hn::ConvertTo(d, quarter)),
                           hn::Set(d, 0.5F));
    const auto x = hn::Mul(t, hn::Set(d, 1.57079633F));
    const auto z = hn::Mul(x, x);
    auto sine = hn::Add(hn::Mul(z, hn::Set(d, -1.9515295891e-4F)), hn::Set(d, 8.3321608736e-3F));
    sine = hn::Add(hn::Mul(sine, z), hn::Set(d, -1.6666654611e-1F));
    sine = hn::Add(hn::Mul(hn::Mul(sine, z), x), x);
    auto cosine =
        hn::Add(hn::Mul(z, hn::Set(d, 2.443315711809948e-5F)), hn::Set(d, -1.388731625493765e-3F));
    cosine = hn::Add(hn::Mul(cosine, z), hn::Set(d, 4.166664568298827e-2F));
    cosine = hn::Add(hn::Sub(hn::Mul(hn::Mul(cosine, z), z), hn::Mul(z, hn::Set(d, 0.5F))),
                     hn::Set(d, 1.0F));
    // A turn by 90 degrees for each quarter; all angles are by 45 degrees too small, which does no
    // harm to a uniform angle.
    const auto one = hn::Set(di, 1);
    const auto two = hn::Set(di, 2);
    const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quarter, one), one));
    const auto sign_sine = hn::ShiftLeft<30>(hn::And(quarter, two));
    const auto sign_cosine = hn::ShiftLeft<30>(hn::And(hn::Add(quarter, one), two));
    const auto first = hn::Xor(hn::IfThenElse(odd, sine, cosine), hn::BitCast(d, sign_cosine));
    const auto second = hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(d, sign_sine));
    store_some(d, hn::Mul(length, first), out + i, some);
    store_some(d, hn::Mul(length, second), out + count + i, some);
  }
}

inline void filter_samples(const float* samples, std::size_t step, const float* taps,
                           std::size_t tap_count, float* out, std::size_t out_stride,
                           std::size_t count) {
  // Four sums on every machine, so that their order is the same.
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < count; ++i) {
    float sums[4] = {};
    for (std::size_t t = 0; t < tap_count; ++t) sums[t % 4] += samples[i * step + t] * taps[t];
    out[i * out_stride] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
#else
  const hn::FixedTag<float, 4> d;
  for (std::size_t i = 0; i < count; ++i) {
    const float* const from = samples + i * step;
    auto sum = hn::Zero(d);
    for (std::size_t t = 0; t < tap_count; t += 4)
      sum = hn::Add(sum, hn::Mul(hn::LoadU(d, from + t), hn::LoadU(d, taps + t)));
    HWY_ALIGN float sums[4];
    hn::Store(sum, d, sums);
    out[i * out_stride] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif

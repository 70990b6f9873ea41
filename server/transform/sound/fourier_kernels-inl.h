// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set: see spectrum_kernels.cpp.
#if defined(SPDLD_TRANSFORM_FOURIER_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_TRANSFORM_FOURIER_KERNELS_INL_H_
#undef SPDLD_TRANSFORM_FOURIER_KERNELS_INL_H_
#else
#define SPDLD_TRANSFORM_FOURIER_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <utility>

#include "transform/sound/fourier_plan.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif

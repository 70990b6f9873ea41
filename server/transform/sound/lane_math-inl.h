// SPDX-License-Identifier: Apache-2.0
// Included once for each instruction set: see spectrum_kernels.cpp and wave_kernels.cpp.
#if defined(SPDLD_TRANSFORM_LANE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_TRANSFORM_LANE_MATH_INL_H_
#undef SPDLD_TRANSFORM_LANE_MATH_INL_H_
#else
#define SPDLD_TRANSFORM_LANE_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "transform/sound/fourier_plan.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif

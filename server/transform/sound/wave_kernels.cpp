// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/wave_kernels.h"

#include <algorithm>

#include "transform/sound/fourier_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/sound/wave_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "transform/sound/lane_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Box and Muller's: a length of which the square is exponential, at a uniform angle.
void normal_numbers(const std::uint64_t* words, std::size_t count, float* out) {
  const hn::CappedTag<float, kMaxFrames> d;
  const hn::RebindToSigned<decltype(d)> di;
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

void filter_samples(const float* samples, std::size_t step, const float* taps,
                    std::size_t tap_count, float* out, std::size_t out_stride, std::size_t count) {
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

#if HWY_ONCE
namespace spdld::transform {

HWY_EXPORT(normal_numbers);
HWY_EXPORT(filter_samples);

void normal_numbers(const std::uint64_t* words, std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(normal_numbers)(words, count, out);
}

void filter_samples(const float* samples, std::size_t step, const float* taps,
                    std::size_t tap_count, float* out, std::size_t out_stride, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(filter_samples)(samples, step, taps, tap_count, out, out_stride, count);
}

}  // namespace spdld::transform
#endif  // HWY_ONCE

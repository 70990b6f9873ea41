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
#include <cstddef>

#include "transform/sound/fourier_kernels-inl.h"
#include "transform/sound/lane_math-inl.h"
#include "transform/sound/spectrum_plan.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

template <class D>
HWY_INLINE hn::Vec<D> log_of(D d, const LogScale& scale, hn::Vec<D> x) {
  const auto floored = hn::Max(hn::Add(x, hn::Set(d, scale.add)), hn::Set(d, scale.floor));
  return hn::Mul(natural_log(d, floored), hn::Set(d, scale.factor));
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

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#endif

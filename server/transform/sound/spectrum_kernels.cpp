// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/spectrum_kernels.h"

// Vectors whose size is known only at run time can lie in no array, as a butterfly's do.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/sound/spectrum_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "transform/sound/spectrum_kernels-inl.h"

#if HWY_ONCE
namespace spdld::transform {

HWY_EXPORT(frame_lanes);
HWY_EXPORT(transform_frames);
HWY_EXPORT(log_values);
HWY_EXPORT(floor_values);
HWY_EXPORT(multiply_rows);

std::size_t frame_lanes() { return HWY_DYNAMIC_DISPATCH(frame_lanes)(); }

std::size_t frame_scratch(const FourierPlan& plan) {
  return static_cast<std::size_t>(plan.length) * 2 * kMaxFrames;  // two complex transforms of half
}

bool transform_frames(const SpectrumPlan& plan, const float* samples, std::size_t hop,
                      std::size_t frames, float* scratch, float* out, std::size_t row_stride,
                      float& largest) {
  return HWY_DYNAMIC_DISPATCH(transform_frames)(plan, samples, hop, frames, scratch, out,
                                                row_stride, largest);
}

float log_values(const LogScale& scale, float* values, std::size_t count, float largest) {
  return HWY_DYNAMIC_DISPATCH(log_values)(scale, values, count, largest);
}

void floor_values(float* values, std::size_t count, float floor, float add, float factor) {
  HWY_DYNAMIC_DISPATCH(floor_values)(values, count, floor, add, factor);
}

void multiply_rows(const float* matrix, std::size_t rows, std::size_t inner, const float* in,
                   float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(multiply_rows)(matrix, rows, inner, in, out, count);
}

}  // namespace spdld::transform
#endif  // HWY_ONCE

// SPDX-License-Identifier: Apache-2.0
#include "transform/image/axis_kernels.h"

#include "transform/image/axis_filter.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/image/axis_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace spdld::transform {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The steps and their order are those of Pillow's coefficients, none of them fused, so that the
// weights are the same to the last bit.
inline void triangle_weights(const TriangleFilter& filter, int begin, AxisGroup& group,
                             double* scratch, std::int32_t* weights) {
  const hn::CappedTag<double, kAxisGroup> d;
  const hn::Rebind<std::int32_t, decltype(d)> d32;
  using V = hn::Vec<decltype(d)>;
  const V zero = hn::Zero(d);
  const V half = hn::Set(d, 0.5);
  const V one = hn::Set(d, 1.0);
  const V support = hn::Set(d, filter.support);
  const V inverse = hn::Set(d, 1.0 / (filter.scale > 1.0 ? filter.scale : 1.0));
  const V fixed_one = hn::Set(d, static_cast<double>(1 << kWeightBits));
  for (std::size_t lane = 0; lane < kAxisGroup; lane += hn::Lanes(d)) {
    const V output = hn::Iota(d, begin + static_cast<double>(lane));
    const V center = hn::Mul(hn::Add(output, half), hn::Set(d, filter.scale));
    const V first = hn::Max(hn::Trunc(hn::Add(hn::Sub(center, support), half)), zero);
    const V end =
        hn::Min(hn::Trunc(hn::Add(hn::Add(center, support), half)), hn::Set(d, filter.in));
    hn::StoreU(hn::DemoteTo(d32, first), d32, group.first + lane);
    hn::StoreU(hn::DemoteTo(d32, end), d32, group.end + lane);
    V source = first;
    V sum = zero;
    for (std::size_t tap = 0; tap < filter.taps; ++tap, source = hn::Add(source, one)) {
      const V x = hn::Mul(hn::Add(hn::Sub(source, center), half), inverse);
      const V weight =
          hn::IfThenElseZero(hn::Lt(source, end), hn::Max(hn::Sub(one, hn::Abs(x)), zero));
      sum = hn::Add(sum, weight);
      hn::StoreU(weight, d, scratch + tap * kAxisGroup + lane);
    }
    // Lanes behind the axis's end have no taps; their weights are not used, and must still be
    // numbers.
    sum = hn::IfThenElse(hn::Gt(sum, zero), sum, one);
    for (std::size_t tap = 0; tap < filter.taps; ++tap) {
      const std::size_t at = tap * kAxisGroup + lane;
      const V share = hn::Div(hn::LoadU(d, scratch + at), sum);
      hn::StoreU(hn::DemoteTo(d32, hn::Add(hn::Mul(share, fixed_one), half)), d32, weights + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace spdld::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spdld::transform {

HWY_EXPORT(triangle_weights);

void triangle_weights(const TriangleFilter& filter, int begin, AxisGroup& group, double* scratch,
                      std::int32_t* weights) {
  HWY_DYNAMIC_DISPATCH(triangle_weights)(filter, begin, group, scratch, weights);
}

}  // namespace spdld::transform
#endif  // HWY_ONCE

// SPDX-License-Identifier: Apache-2.0
#include "transform/axis_filter.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace spdld::transform {
namespace {

constexpr double kOne = 1 << kWeightBits;

double triangle(double x) {
  const double distance = std::abs(x);
  return distance < 1.0 ? 1.0 - distance : 0.0;
}

// Keys' cubic. Pillow smooths with a = -0.5; interpolation between neighbours takes -0.75, as
// torch does.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

std::int32_t fixed_point(double weight) {
  return static_cast<std::int32_t>(weight < 0 ? weight * kOne - 0.5 : weight * kOne + 0.5);
}

double support_of(Interpolation interpolation) {
  return interpolation == Interpolation::kBicubic ? 2.0 : 1.0;
}

}  // namespace

bool AxisFilter::build(const Request& request) {
  if (request == request_) return false;
  SPDLD_CHECK(request.in > 0 && request.begin >= 0 && request.begin < request.end &&
              request.end <= request.out);
  request_ = request;
  const double scale = static_cast<double>(request.in) / request.out;
  const bool smooths = request.interpolation != Interpolation::kNearest && request.antialias;
  const double support = support_of(request.interpolation) * std::max(scale, 1.0);
  stride_ = smooths ? (static_cast<std::size_t>(std::ceil(support)) * 2 + 4) / 4 * 4 : 4;
  const auto outputs = static_cast<std::size_t>(request.end - request.begin);
  spans_.resize(outputs);
  weights_.resize(outputs * stride_);
  line_.resize(stride_);
  max_count_ = 0;
  source_begin_ = request.in;
  source_end_ = 0;
  if (request.interpolation == Interpolation::kNearest) {
    nearest(scale);
    return true;
  }
  for (int i = 0; i < size(); ++i) {
    const double center = (request.begin + i + 0.5) * scale;
    if (smooths) {
      smooth(i, center, scale);
    } else {
      between(i, center);
    }
  }
  return true;
}

// Step by step from the first output on, as Pillow goes: where a center lies between two pixels,
// the rounding of the sum decides.
void AxisFilter::nearest(double scale) {
  double center = scale * 0.5;
  line_[0] = 1.0;
  for (int x = 0; x < request_.end; ++x, center += scale) {
    if (x < request_.begin) continue;
    store(x - request_.begin, std::min(static_cast<int>(center), request_.in - 1), 1);
  }
}

// The filter is stretched so that it covers every source pixel.
void AxisFilter::smooth(int i, double center, double scale) {
  const double stretch = std::max(scale, 1.0);
  const double inverse = 1.0 / stretch;
  const double support = support_of(request_.interpolation) * stretch;
  const int first = std::max(static_cast<int>(center - support + 0.5), 0);
  const int count = std::min(static_cast<int>(center + support + 0.5), request_.in) - first;
  double sum = 0.0;
  for (int tap = 0; tap < count; ++tap) {
    const double x = (tap + first - center + 0.5) * inverse;
    const double weight =
        request_.interpolation == Interpolation::kBicubic ? cubic(x, -0.5) : triangle(x);
    line_[static_cast<std::size_t>(tap)] = weight;
    sum += weight;
  }
  for (int tap = 0; tap < count; ++tap) line_[static_cast<std::size_t>(tap)] /= sum;
  store(i, first, count);
}

void AxisFilter::between(int i, double center) {
  const bool is_cubic = request_.interpolation == Interpolation::kBicubic;
  const double position = is_cubic ? center - 0.5 : std::max(center - 0.5, 0.0);
  const int left = static_cast<int>(std::floor(position)) - (is_cubic ? 1 : 0);
  const int taps = is_cubic ? 4 : 2;
  const int last = request_.in - 1;
  const int first = std::clamp(left, 0, last);
  const int count = std::clamp(left + taps - 1, 0, last) - first + 1;
  std::fill_n(line_.begin(), count, 0.0);
  for (int tap = 0; tap < taps; ++tap) {
    const double x = left + tap - position;
    const double weight = is_cubic ? cubic(x, -0.75) : triangle(x);
    line_[static_cast<std::size_t>(std::clamp(left + tap, 0, last) - first)] += weight;
  }
  store(i, first, count);
}

// Rounds the line's weights; pixels at either end that then count for nothing are not needed.
void AxisFilter::store(int i, int first, int count) {
  std::int32_t* const out = weights_.data() + static_cast<std::size_t>(i) * stride_;
  int skipped = 0;
  while (skipped + 1 < count && fixed_point(line_[static_cast<std::size_t>(skipped)]) == 0) {
    ++skipped;
  }
  while (count > skipped + 1 && fixed_point(line_[static_cast<std::size_t>(count - 1)]) == 0) {
    --count;
  }
  first += skipped;
  count -= skipped;
  for (int tap = 0; tap < count; ++tap) {
    out[tap] = fixed_point(line_[static_cast<std::size_t>(tap + skipped)]);
  }
  std::fill(out + count, out + stride_, 0);
  spans_[static_cast<std::size_t>(i)] = {first, count};
  max_count_ = std::max(max_count_, count);
  source_begin_ = std::min(source_begin_, first);
  source_end_ = std::max(source_end_, first + count);
}

}  // namespace spdld::transform

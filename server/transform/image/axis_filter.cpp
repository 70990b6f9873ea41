// SPDX-License-Identifier: Apache-2.0
#include "transform/image/axis_filter.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "transform/image/axis_kernels.h"

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

}  // namespace

bool AxisFilter::build(const Request& request) {
  if (request == request_) return false;
  SPDLD_CHECK(request.in > 0 && request.begin >= 0 && request.begin < request.end &&
              request.end <= request.out);
  request_ = request;
  const double scale = static_cast<double>(request.in) / request.out;
  const bool is_cubic = request.interpolation == Interpolation::kBicubic;
  const bool smooths = !is_nearest(request.interpolation) && request.antialias;
  const double support = (is_cubic ? 2.0 : 1.0) * std::max(scale, 1.0);
  // Room for the pixels within the support, one more where it is a whole number, and one for the
  // rounding of its ends.
  stride_ = smooths ? (static_cast<std::size_t>(2 * support) + 5) / 4 * 4 : 4;
  const auto outputs = static_cast<std::size_t>(request.end - request.begin);
  spans_.resize(outputs);
  weights_.resize(outputs * stride_);
  if (request.exact) exact_.resize(outputs * stride_);
  line_.resize(stride_);
  max_count_ = 0;
  source_begin_ = request.in;
  source_end_ = 0;
  if (request.interpolation == Interpolation::kNearest) {
    nearest(scale);
  } else if (request.interpolation == Interpolation::kNearestExact) {
    nearest_exact();
  } else if (!smooths) {
    between(scale);
  } else if (is_cubic) {
    smooth(scale, support, [](double x) { return cubic(x, -0.5); });
  } else if (request.exact) {
    smooth(scale, support, triangle);
  } else {
    smooth_linear(scale, support);
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
    round_line(x - request_.begin, std::min(static_cast<int>(center), request_.in - 1), 1);
  }
}

// In single precision, as torch goes.
void AxisFilter::nearest_exact() {
  const float scale = static_cast<float>(request_.in) / static_cast<float>(request_.out);
  line_[0] = 1.0;
  for (int x = request_.begin; x < request_.end; ++x) {
    const float center = (static_cast<float>(x) + 0.5F) * scale;
    round_line(x - request_.begin, std::min(static_cast<int>(center), request_.in - 1), 1);
  }
}

// The filter is stretched so that it covers every source pixel.
void AxisFilter::smooth_linear(double scale, double support) {
  const TriangleFilter filter{
      .in = static_cast<double>(request_.in), .scale = scale, .support = support, .taps = stride_};
  line_.resize(stride_ * kAxisGroup);
  group_weights_.resize(stride_ * kAxisGroup);
  AxisGroup group;
  for (int begin = 0; begin < size(); begin += static_cast<int>(kAxisGroup)) {
    triangle_weights(filter, request_.begin + begin, group, line_.data(), group_weights_.data());
    const int outputs = std::min(size() - begin, static_cast<int>(kAxisGroup));
    for (int lane = 0; lane < outputs; ++lane) {
      const int i = begin + lane;
      std::int32_t* const out = weights_.data() + static_cast<std::size_t>(i) * stride_;
      const std::int32_t* in = group_weights_.data() + lane;
      for (std::size_t tap = 0; tap < stride_; ++tap, in += kAxisGroup) out[tap] = *in;
      trim(i, group.first[lane], group.end[lane] - group.first[lane]);
    }
  }
}

template <typename Kernel>
void AxisFilter::smooth(double scale, double support, const Kernel& kernel) {
  const double inverse = 1.0 / std::max(scale, 1.0);
  for (int i = 0; i < size(); ++i) {
    const double center = (request_.begin + i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int count = std::min(static_cast<int>(center + support + 0.5), request_.in) - first;
    double sum = 0.0;
    for (int tap = 0; tap < count; ++tap) {
      const double weight = kernel((tap + first - center + 0.5) * inverse);
      line_[static_cast<std::size_t>(tap)] = weight;
      sum += weight;
    }
    for (int tap = 0; tap < count; ++tap) line_[static_cast<std::size_t>(tap)] /= sum;
    round_line(i, first, count);
  }
}

void AxisFilter::between(double scale) {
  const bool is_cubic = request_.interpolation == Interpolation::kBicubic;
  const int taps = is_cubic ? 4 : 2;
  const int last = request_.in - 1;
  for (int i = 0; i < size(); ++i) {
    const double center = (request_.begin + i + 0.5) * scale;
    const double position = is_cubic ? center - 0.5 : std::max(center - 0.5, 0.0);
    const int left = static_cast<int>(std::floor(position)) - (is_cubic ? 1 : 0);
    const int first = std::clamp(left, 0, last);
    const int count = std::clamp(left + taps - 1, 0, last) - first + 1;
    std::fill_n(line_.begin(), count, 0.0);
    for (int tap = 0; tap < taps; ++tap) {
      const double x = left + tap - position;
      const double weight = is_cubic ? cubic(x, -0.75) : triangle(x);
      line_[static_cast<std::size_t>(std::clamp(left + tap, 0, last) - first)] += weight;
    }
    round_line(i, first, count);
  }
}

void AxisFilter::round_line(int i, int first, int count) {
  std::int32_t* const out = weights_.data() + static_cast<std::size_t>(i) * stride_;
  for (int tap = 0; tap < count; ++tap) {
    out[tap] = fixed_point(line_[static_cast<std::size_t>(tap)]);
  }
  std::fill(out + count, out + stride_, 0);
  if (request_.exact)
    std::copy_n(line_.begin(), count, exact_.begin() + i * static_cast<std::ptrdiff_t>(stride_));
  trim(i, first, count);
}

// Pixels at either end that count for nothing are not needed.
void AxisFilter::trim(int i, int first, int count) {
  std::int32_t* const out = weights_.data() + static_cast<std::size_t>(i) * stride_;
  while (count > 1 && out[count - 1] == 0) --count;
  if (out[0] == 0) {
    const int skipped =
        static_cast<int>(std::find_if(out, out + count - 1, [](int w) { return w != 0; }) - out);
    std::copy(out + skipped, out + count, out);
    std::fill(out + count - skipped, out + count, 0);
    if (request_.exact) {
      const auto exact = exact_.begin() + i * static_cast<std::ptrdiff_t>(stride_);
      std::copy(exact + skipped, exact + count, exact);
    }
    first += skipped;
    count -= skipped;
  }
  spans_[static_cast<std::size_t>(i)] = {first, count};
  max_count_ = std::max(max_count_, count);
  source_begin_ = std::min(source_begin_, first);
  source_end_ = std::max(source_end_, first + count);
}

}  // namespace spdld::transform

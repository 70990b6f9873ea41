// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace spdld::transform {

// Sums over samples, in float64 and always in the same order. NaN or infinite: one sample is.
struct SampleSums {
  double sum = 0;
  double squares = 0;
  float peak = 0;  // the largest magnitude
};

inline SampleSums sums_of(std::span<const float> samples) {
  constexpr std::size_t kParts = 4;  // that do not wait for each other
  std::array<double, kParts> sum{};
  std::array<double, kParts> squares{};
  std::array<float, kParts> peak{};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double value = samples[i];
    sum[i % kParts] += value;
    squares[i % kParts] += value * value;
    peak[i % kParts] = std::max(peak[i % kParts], std::abs(samples[i]));
  }
  SampleSums all;
  for (std::size_t part = 0; part < kParts; ++part) {
    all.sum += sum[part];
    all.squares += squares[part];
    all.peak = std::max(all.peak, peak[part]);
  }
  return all;
}

}  // namespace spdld::transform

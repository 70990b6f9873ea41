// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/fourier_plan.h"

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/check.h"

namespace spdld::transform {
namespace {

// The radices of a complex transform; empty: one would be above kMaxRadix.
std::vector<int> radices(int length) {
  std::vector<int> found;
  const auto take = [&](int radix) {
    while (length % radix == 0) {
      found.push_back(radix);
      length /= radix;
    }
  };
  take(5);
  take(3);
  take(4);
  take(2);
  for (int radix = 7; radix <= kMaxRadix; radix += 2) take(radix);
  if (found.empty()) found.push_back(1);
  return length == 1 ? found : std::vector<int>{};
}

// e^(-2 pi i * numerator / denominator)
void append_root(std::vector<float>& pairs, std::int64_t numerator, std::int64_t denominator) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(numerator % denominator) /
                       static_cast<double>(denominator);
  pairs.push_back(static_cast<float>(std::cos(angle)));
  pairs.push_back(static_cast<float>(std::sin(angle)));
}

}  // namespace

bool has_fourier_plan(int length) {
  return length >= 2 && length % 2 == 0 && !radices(length / 2).empty();
}

FourierPlan fourier_plan(int length) {
  SPDLD_CHECK(has_fourier_plan(length));
  FourierPlan plan{.length = length, .passes = {}, .twiddles = {}, .half_twiddles = {}};
  const int half = length / 2;
  int left = half;
  for (const int radix : radices(half)) {
    const int blocks = left / radix;
    plan.passes.push_back({radix, blocks, half / left, plan.twiddles.size()});
    if (radix > 5) {
      for (int i = 0; i < radix; ++i) append_root(plan.twiddles, i, radix);
    }
    for (int block = 0; block < blocks; ++block) {
      for (int i = 1; i < radix; ++i)
        append_root(plan.twiddles, std::int64_t{block} * i, std::int64_t{blocks} * radix);
    }
    left = blocks;
  }
  for (int bin = 0; bin <= half / 2; ++bin) append_root(plan.half_twiddles, bin, length);
  return plan;
}

}  // namespace spdld::transform

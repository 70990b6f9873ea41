// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/fourier_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <string>
#include <vector>

#include "tests/unit/transform/sound/sounds.h"

namespace spdld::transform {
namespace {

// One frame's powers by the definition, in float64, with the window that the op puts over it.
std::vector<double> defined_powers(const Sound& sound, int length) {
  std::vector<double> powers;
  for (int bin = 0; bin <= length / 2; ++bin) {
    std::complex<double> sum = 0;
    for (int i = 0; i < length; ++i) {
      const double window = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / length);
      const double angle = -2 * std::numbers::pi * static_cast<double>(bin) * i / length;
      sum += window * sound.values[static_cast<std::size_t>(i)] * std::polar(1.0, angle);
    }
    powers.push_back(std::norm(sum));
  }
  return powers;
}

TEST(Fourier, IsTheDefinitionForEveryMixOfFactors) {
  for (const std::int64_t length : {2,  4,  6,   8,   10,  12,  14,  18,  22,  26,  30,  44,
                                    50, 62, 100, 128, 154, 182, 250, 400, 434, 512, 882, 1922}) {
    SCOPED_TRACE(length);
    const Sound sound = pattern(1, length);
    const Sound spectrum = changed("spectrogram", {{"n_fft", length}, {"center", false}}, sound);
    const std::vector<double> expected = defined_powers(sound, static_cast<int>(length));
    ASSERT_EQ(spectrum.values.size(), expected.size());
    const double largest = *std::max_element(expected.begin(), expected.end());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(spectrum.values[i], expected[i], 1e-5 * expected[i] + 1e-6 * largest + 1e-9);
  }
}

TEST(Fourier, HasPlansForEvenLengthsOfSmallFactors) {
  for (const int length : {2, 62, 400, 65536, 60750}) EXPECT_TRUE(has_fourier_plan(length));
  for (const int length : {-2, 0, 1, 3, 401, 74, 2 * 37 * 4}) {
    EXPECT_FALSE(has_fourier_plan(length)) << length;
  }
}

}  // namespace
}  // namespace spdld::transform

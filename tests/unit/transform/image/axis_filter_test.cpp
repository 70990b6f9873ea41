// SPDX-License-Identifier: Apache-2.0
#include "transform/image/axis_filter.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace spdld::transform {
namespace {

using Request = AxisFilter::Request;

constexpr int kOne = 1 << kWeightBits;

std::vector<Request> requests() {
  std::vector<Request> all;
  for (const auto interpolation : {Interpolation::kNearest, Interpolation::kBilinear,
                                   Interpolation::kBicubic, Interpolation::kNearestExact}) {
    for (const bool antialias : {true, false}) {
      for (const int in : {1, 2, 3, 7, 64, 225, 1000}) {
        for (const int out : {1, 2, 5, 32, 224, 1500}) {
          all.push_back({in, out, 0, out, interpolation, antialias});
        }
      }
    }
  }
  return all;
}

std::string text(const Request& request) {
  return std::to_string(request.in) + " to " + std::to_string(request.out) + ", interpolation " +
         std::to_string(static_cast<int>(request.interpolation)) +
         (request.antialias ? ", antialias" : "");
}

TEST(AxisFilter, WeighsEachOutputByOneInAll) {
  AxisFilter filter;
  for (const Request& request : requests()) {
    filter.build(request);
    ASSERT_EQ(filter.size(), request.out);
    for (int i = 0; i < filter.size(); ++i) {
      const std::int32_t* const weights = filter.weights(i);
      const int sum = std::accumulate(weights, weights + filter.max_count(), 0);
      // Each weight is rounded by itself.
      EXPECT_LE(std::abs(sum - kOne), filter.span(i).count) << text(request) << ", output " << i;
    }
  }
}

TEST(AxisFilter, NeedsOnlyPixelsOfTheLineThatCount) {
  AxisFilter filter;
  for (const Request& request : requests()) {
    filter.build(request);
    for (int i = 0; i < filter.size(); ++i) {
      const auto [first, count] = filter.span(i);
      ASSERT_TRUE(first >= 0 && count >= 1 && first + count <= request.in) << text(request);
      EXPECT_NE(filter.weights(i)[0], 0) << text(request);
      EXPECT_NE(filter.weights(i)[count - 1], 0) << text(request);
      for (int tap = count; tap < filter.max_count(); ++tap) {
        EXPECT_EQ(filter.weights(i)[tap], 0) << text(request);
      }
    }
  }
}

TEST(AxisFilter, MakesAPartAsItMakesTheWhole) {
  AxisFilter whole;
  AxisFilter part;
  for (Request request : requests()) {
    whole.build(request);
    request.begin = request.out / 3;
    request.end = request.begin + (request.out + 3) / 4;
    part.build(request);
    for (int i = 0; i < part.size(); ++i) {
      const int at = request.begin + i;
      ASSERT_EQ(part.span(i).first, whole.span(at).first) << text(request);
      ASSERT_EQ(part.span(i).count, whole.span(at).count) << text(request);
      for (int tap = 0; tap < part.span(i).count; ++tap) {
        ASSERT_EQ(part.weights(i)[tap], whole.weights(at)[tap]) << text(request);
      }
      EXPECT_GE(part.span(i).first, part.source_begin());
      EXPECT_LE(part.span(i).first + part.span(i).count, part.source_end());
    }
  }
}

TEST(AxisFilter, IsSymmetric) {
  AxisFilter filter;
  for (const auto interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    filter.build({.in = 96, .out = 64, .begin = 0, .end = 64, .interpolation = interpolation});
    for (int i = 0; i < 64; ++i) {
      const auto [first, count] = filter.span(i);
      const auto [other, other_count] = filter.span(63 - i);
      ASSERT_EQ(count, other_count);
      EXPECT_EQ(first, 96 - other - other_count);
      for (int tap = 0; tap < count; ++tap) {
        EXPECT_EQ(filter.weights(i)[tap], filter.weights(63 - i)[count - 1 - tap]);
      }
    }
  }
}

TEST(AxisFilter, KeepsItsTablesWhileTheRequestIsTheSame) {
  AxisFilter filter;
  const Request request{.in = 290, .out = 224, .begin = 3, .end = 200};
  EXPECT_TRUE(filter.build(request));
  EXPECT_FALSE(filter.build(request));
  EXPECT_TRUE(filter.build({.in = 291, .out = 224, .begin = 3, .end = 200}));
  EXPECT_TRUE(filter.build(request));
}

// Where a center lies between two pixels, torch's float32 and Pillow's sum differ.
TEST(AxisFilter, TakesThePixelsThatTorchAndPillowTake) {
  struct Tie {
    int in = 0;
    int out = 0;
    int at = 0;
    int torch = 0;
    int pillow = 0;
  };
  for (const Tie& tie : {Tie{130, 261, 130, 65, 64}, Tie{398, 411, 205, 199, 198},
                         Tie{632, 398, 99, 158, 157}, Tie{114, 469, 234, 57, 56}}) {
    AxisFilter filter;
    Request request{.in = tie.in, .out = tie.out, .begin = tie.at, .end = tie.out};
    request.interpolation = Interpolation::kNearestExact;
    filter.build(request);
    EXPECT_EQ(filter.span(0).first, tie.torch);
    EXPECT_EQ(filter.span(0).count, 1);
    request.interpolation = Interpolation::kNearest;
    filter.build(request);
    EXPECT_EQ(filter.span(0).first, tie.pillow);
  }
}

TEST(AxisFilterDeathTest, RefusesOutputsThatAreNone) {
  AxisFilter filter;
  EXPECT_DEATH(filter.build({.in = 5, .out = 5, .begin = 3, .end = 3}), "begin < request.end");
  EXPECT_DEATH(filter.build({.in = 0, .out = 5, .begin = 0, .end = 5}), "request.in > 0");
}

}  // namespace
}  // namespace spdld::transform

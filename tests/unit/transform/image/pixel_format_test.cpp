// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/unit/transform/image/images.h"

namespace spdld::transform {
namespace {

PixelFormat imagenet(DType dtype) {
  return {.dtype = dtype,
          .scale = 1.0F / 255.0F,
          .normalized = true,
          .mean = {0.485F, 0.456F, 0.406F},
          .std = {0.229F, 0.224F, 0.225F}};
}

template <typename T>
std::vector<T> values(const TestImage& image, const PixelFormat& format, Layout layout) {
  ImagePass pass;
  const std::vector<std::byte> bytes =
      run_bytes(pass, image, Geometry::identity(image.size()), format, layout);
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Every byte once in every channel, in a width that leaves a tail for any vector.
TestImage every_byte(int channels) {
  TestImage image = blank(131, 2, channels);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.at(x, y, c) = static_cast<std::uint8_t>(y * image.width + x + 17 * c);
      }
    }
  }
  return image;
}

std::size_t index(const TestImage& image, Layout layout, int x, int y, int c) {
  const int at = layout == Layout::kNHWC ? (y * image.width + x) * image.channels + c
                                         : (c * image.height + y) * image.width + x;
  return static_cast<std::size_t>(at);
}

TEST(PixelFormat, NormalizesEachChannel) {
  for (const int channels : {1, 3}) {
    const TestImage image = every_byte(channels);
    const PixelFormat format = imagenet(DType::kFloat32);
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      const std::vector<float> out = values<float>(image, format, layout);
      for (int y = 0; y < image.height; ++y) {
        for (int x = 0; x < image.width; ++x) {
          for (int c = 0; c < channels; ++c) {
            const auto i = static_cast<std::size_t>(c);
            const float in = static_cast<float>(image.at(x, y, c)) * format.scale;
            EXPECT_NEAR(out[index(image, layout, x, y, c)], (in - format.mean[i]) / format.std[i],
                        1e-5);
          }
        }
      }
    }
  }
}

TEST(PixelFormat, OnlyScalesWhatIsNotNormalized) {
  const TestImage image = every_byte(3);
  const PixelFormat format{.dtype = DType::kFloat32, .scale = 1.0F / 255.0F};
  const std::vector<float> out = values<float>(image, format, Layout::kNHWC);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<float>(image.pixels[i]) * format.scale);
  }
}

TEST(PixelFormat, NormalizesPaddingToo) {
  Geometry geometry = Geometry::identity({2, 2});
  geometry.window = {-1, -1, 4, 4};
  ImagePass pass;
  const PixelFormat format = imagenet(DType::kFloat32);
  const std::vector<std::byte> bytes =
      run_bytes(pass, noise(2, 2, 3), geometry, format, Layout::kNCHW);
  float corner = 0;
  std::memcpy(&corner, bytes.data(), sizeof(corner));
  EXPECT_NEAR(corner, -0.485 / 0.229, 1e-6);
  std::memcpy(&corner, bytes.data() + bytes.size() - sizeof(corner), sizeof(corner));
  EXPECT_NEAR(corner, -0.406 / 0.225, 1e-6);
}

double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double bfloat_value(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// The 16-bit float nearest to `value`, the even one of two, searched among all; `infinity` stands
// for the number that would follow the largest one.
std::uint16_t nearest_even(double value, double (*decode)(std::uint16_t), std::uint16_t infinity) {
  std::uint16_t low = 0;
  std::uint16_t high = infinity;
  const double magnitude = std::abs(value);
  if (magnitude >= decode(infinity)) return infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (decode(middle) <= magnitude ? low : high) = middle;
  }
  const double down = magnitude - decode(low);
  const double up = decode(high) - magnitude;
  return down < up || (down == up && low % 2 == 0) ? low : high;
}

void expect_nearest(const PixelFormat& narrow, double (*decode)(std::uint16_t),
                    std::uint16_t infinity) {
  PixelFormat wide = narrow;
  wide.dtype = DType::kFloat32;
  const TestImage image = every_byte(3);
  const std::vector<float> exact = values<float>(image, wide, Layout::kNCHW);
  const std::vector<std::uint16_t> out = values<std::uint16_t>(image, narrow, Layout::kNCHW);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint16_t sign = std::signbit(exact[i]) ? 0x8000 : 0;
    ASSERT_EQ(out[i], sign | nearest_even(exact[i], decode, infinity)) << exact[i];
  }
}

TEST(PixelFormat, RoundsHalfFloatsToNearestEven) {
  PixelFormat format = imagenet(DType::kFloat16);
  expect_nearest(format, half_value, 0x7c00);
  format.std = {1e6F, 3e4F, 2e-5F};  // subnormal, the smallest normal, infinite
  expect_nearest(format, half_value, 0x7c00);
  format = {.dtype = DType::kFloat16, .scale = 0x1p-25F};  // many ties
  expect_nearest(format, half_value, 0x7c00);
  format.scale = 65520.0F / 255.0F;
  expect_nearest(format, half_value, 0x7c00);
}

TEST(PixelFormat, RoundsBrainFloatsToNearestEven) {
  PixelFormat format = imagenet(DType::kBFloat16);
  // Far from bfloat16's largest number, so that the search need not know about it.
  expect_nearest(format, bfloat_value, 0x7f00);
  format = {.dtype = DType::kBFloat16, .scale = 1.0F + 0x1p-8F};
  expect_nearest(format, bfloat_value, 0x7f00);
}

}  // namespace
}  // namespace spdld::transform

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/unit/transform/image/images.h"

namespace spdld::transform {
namespace {

// Channel `c` of an image, as an image of one.
TestImage channel_of(const TestImage& image, int c) {
  TestImage out = blank(image.width, image.height, 1);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) out.at(x, y, 0) = image.at(x, y, c);
  return out;
}

std::vector<Geometry> some_geometries(Size size) {
  std::vector<Geometry> all = {Geometry::identity(size)};
  for (const Interpolation interpolation :
       {Interpolation::kNearest, Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (const bool antialias : {false, true}) {
      for (const Size to :
           {Size{31, 17}, Size{200, 90}, Size{size.width, 20}, Size{30, size.height}})
        all.push_back(resized(size, to, interpolation, antialias));
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].flip = i % 2 == 1;
    if (i % 3 == 0) all[i].window = {-3, 4, 20, 19};  // beside the image, and over its edge
    if (i % 3 == 1) all[i].window = {5, 2, 11, 9};
  }
  return all;
}

TEST(PlainPass, MakesOfEachChannelWhatItMakesOfThatAlone) {
  for (const int channels : {2, 4}) {
    const TestImage image = noise(97, 61, channels);
    ImagePass pass;
    for (const Geometry& geometry : some_geometries(image.size())) {
      const TestImage out = run(pass, image, geometry);
      for (int c = 0; c < channels; ++c)
        ASSERT_EQ(channel_of(out, c).pixels, run(channel_of(image, c), geometry).pixels);
    }
  }
}

TEST(PlainPass, LaysChannelsOutInEitherOrder) {
  for (const int channels : {2, 4}) {
    const TestImage image = noise(40, 30, channels);
    const Geometry geometry = resized(image.size(), {23, 11});
    ImagePass pass;
    const auto rows = run_bytes(pass, image, geometry, {}, Layout::kNHWC);
    const auto planes = run_bytes(pass, image, geometry, {}, Layout::kNCHW);
    for (int i = 0; i < 23 * 11; ++i) {
      for (int c = 0; c < channels; ++c) {
        ASSERT_EQ(planes[static_cast<std::size_t>(c * 23 * 11 + i)],
                  rows[static_cast<std::size_t>(i * channels + c)]);
      }
    }
  }
}

TEST(PlainPass, NormalizesEachOfFourChannels) {
  const TestImage image = noise(37, 5, 4);
  const PixelFormat format{.dtype = DType::kFloat32,
                           .scale = 1.0F / 255.0F,
                           .normalized = true,
                           .mean = {0.1F, 0.2F, 0.3F, 0.4F},
                           .std = {0.5F, 0.6F, 0.7F, 0.8F}};
  ImagePass pass;
  for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    const auto bytes = run_bytes(pass, image, Geometry::identity(image.size()), format, layout);
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 37; ++x) {
        for (int c = 0; c < 4; ++c) {
          const int at = layout == Layout::kNHWC ? (y * 37 + x) * 4 + c : (c * 5 + y) * 37 + x;
          float value = 0;
          std::memcpy(&value, bytes.data() + static_cast<std::size_t>(at) * 4, sizeof(value));
          const auto i = static_cast<std::size_t>(c);
          ASSERT_NEAR(value, (image.at(x, y, c) / 255.0F - format.mean[i]) / format.std[i], 1e-5);
        }
      }
    }
  }
}

// An image of 16 bits.
struct WideImage {
  int width = 0;
  int height = 0;
  int channels = 0;
  std::vector<std::uint16_t> values = {};

  std::uint16_t at(int x, int y, int c) const {
    return values[static_cast<std::size_t>((y * width + x) * channels + c)];
  }
  Size size() const { return {width, height}; }
};

WideImage wide_noise(int width, int height, int channels, std::uint64_t seed = 1) {
  WideImage image{width, height, channels};
  KeyedRng rng(seed);
  for (int i = 0; i < width * height * channels; ++i)
    image.values.push_back(static_cast<std::uint16_t>(rng.next()));
  return image;
}

// Rows come from odd addresses, which decoders may do.
std::vector<std::byte> run_wide_bytes(ImagePass& pass, const WideImage& image,
                                      const Geometry& geometry, const PixelFormat& format,
                                      Layout layout) {
  const Size out = geometry.output();
  std::vector<std::byte> bytes(static_cast<std::size_t>(out.width * out.height * image.channels) *
                               wire::dtype_bytes(format.dtype));
  const Rect region = pass.begin(geometry, image.channels, {bytes.data(), format, layout}, 2);
  const auto row_bytes = static_cast<std::size_t>(region.width * image.channels) * 2;
  for (int y = 0; y < region.height; ++y) {
    std::vector<std::uint8_t> row(row_bytes + 1);
    const std::ptrdiff_t from = ((region.y + y) * image.width + region.x) * image.channels;
    std::memcpy(row.data() + 1, image.values.data() + from, row_bytes);
    pass.row(y, row.data() + 1);
  }
  pass.finish();
  return bytes;
}

WideImage run_wide(ImagePass& pass, const WideImage& image, const Geometry& geometry) {
  const std::vector<std::byte> bytes =
      run_wide_bytes(pass, image, geometry, {.dtype = DType::kUInt16}, Layout::kNHWC);
  WideImage out{geometry.output().width, geometry.output().height, image.channels};
  out.values.resize(bytes.size() / 2);
  std::memcpy(out.values.data(), bytes.data(), bytes.size());
  return out;
}

double kernel(double x, Interpolation interpolation) {
  x = std::abs(x);
  if (interpolation == Interpolation::kBilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

// The weights of all `in` values for output `i` of `out`, by the book.
std::vector<double> weights_of(int in, int out, int i, Interpolation interpolation) {
  std::vector<double> weights(static_cast<std::size_t>(in), 0.0);
  const double scale = static_cast<double>(in) / out;
  const double filter_scale = std::max(scale, 1.0);
  const double support = (interpolation == Interpolation::kBicubic ? 2 : 1) * filter_scale;
  const double center = (i + 0.5) * scale;
  const int first = std::max(static_cast<int>(center - support + 0.5), 0);
  const int end = std::min(static_cast<int>(center + support + 0.5), in);
  double sum = 0;
  for (int x = first; x < end; ++x) {
    weights[static_cast<std::size_t>(x)] = kernel((x - center + 0.5) / filter_scale, interpolation);
    sum += weights[static_cast<std::size_t>(x)];
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(WidePass, IsWithinOneOfAResizeInOneGo) {
  const WideImage image = wide_noise(61, 43, 1);
  ImagePass pass;
  for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (const Size to : {Size{20, 13}, Size{100, 90}, Size{61, 7}, Size{9, 43}}) {
      const WideImage out = run_wide(pass, image, resized(image.size(), to, interpolation));
      for (int y = 0; y < to.height; ++y) {
        const std::vector<double> rows = weights_of(43, to.height, y, interpolation);
        for (int x = 0; x < to.width; ++x) {
          const std::vector<double> columns = weights_of(61, to.width, x, interpolation);
          double sum = 0;
          for (int v = 0; v < 43; ++v) {
            // What a first pass cannot keep is cut off.
            double line = 0;
            for (int u = 0; u < 61; ++u)
              line += columns[static_cast<std::size_t>(u)] * image.at(u, v, 0);
            sum += rows[static_cast<std::size_t>(v)] * std::clamp(line, 0.0, 65535.0);
          }
          ASSERT_NEAR(out.at(x, y, 0), std::clamp(sum, 0.0, 65535.0), 1.2)
              << x << "," << y << " of " << to.width << "x" << to.height;
        }
      }
    }
  }
}

TEST(WidePass, KeepsAConstantWhateverTheScale) {
  for (const std::uint16_t value : {0, 1, 257, 40000, 65535}) {
    WideImage image{3000, 9, 1, std::vector<std::uint16_t>(3000 * 9, value)};
    ImagePass pass;
    for (const Interpolation interpolation : {Interpolation::kBilinear, Interpolation::kBicubic}) {
      for (const Size to : {Size{3, 3}, Size{7, 40}, Size{3001, 8}}) {
        const WideImage out = run_wide(pass, image, resized(image.size(), to, interpolation));
        EXPECT_EQ(std::count(out.values.begin(), out.values.end(), value),
                  static_cast<std::ptrdiff_t>(out.values.size()));
      }
    }
  }
}

TEST(WidePass, CropsFlipsAndPadsLikeThePassOfBytes) {
  const TestImage narrow = noise(97, 61, 3);
  WideImage wide{97, 61, 3};
  for (const std::uint8_t pixel : narrow.pixels)
    wide.values.push_back(static_cast<std::uint16_t>(pixel * 257));
  ImagePass pass;
  for (const Geometry& geometry : some_geometries(narrow.size())) {
    if (geometry.resizes() && geometry.interpolation != Interpolation::kNearest) continue;
    const TestImage expected = run(narrow, geometry);
    const WideImage out = run_wide(pass, wide, geometry);
    ASSERT_EQ(out.values.size(), expected.pixels.size());
    for (std::size_t i = 0; i < out.values.size(); ++i)
      ASSERT_EQ(out.values[i], expected.pixels[i] * 257);
  }
}

TEST(WidePass, BecomesFloats) {
  const WideImage image = wide_noise(131, 2, 3);
  const PixelFormat plain{.dtype = DType::kFloat32};
  const PixelFormat scaled{.dtype = DType::kFloat32, .scale = 1.0F / 65535.0F};
  ImagePass pass;
  const Geometry all = Geometry::identity(image.size());
  for (const PixelFormat& format : {plain, scaled}) {
    const auto bytes = run_wide_bytes(pass, image, all, format, Layout::kNHWC);
    for (std::size_t i = 0; i < image.values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, bytes.data() + 4 * i, sizeof(value));
      ASSERT_EQ(value, static_cast<float>(image.values[i]) * format.scale);
    }
  }
}

TEST(WidePass, RoundsHalfFloatsAsThePassOfBytesDoes) {
  const TestImage narrow = noise(131, 2, 1);
  WideImage wide{131, 2, 1};
  wide.values.assign(narrow.pixels.begin(), narrow.pixels.end());
  ImagePass pass;
  const Geometry all = Geometry::identity(narrow.size());
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const PixelFormat format{.dtype = dtype, .scale = 0.0123F};
    EXPECT_EQ(run_wide_bytes(pass, wide, all, format, Layout::kNHWC),
              run_bytes(pass, narrow, all, format, Layout::kNHWC));
  }
}

TEST(WidePass, MayTakeTurnsWithOthers) {
  ImagePass pass;
  const TestImage narrow = noise(50, 40, 3);
  const WideImage wide = wide_noise(50, 40, 1);
  const Geometry geometry = resized(narrow.size(), {20, 30});
  const TestImage narrow_alone = run(narrow, geometry);
  const std::vector<std::uint16_t> wide_alone = run_wide(pass, wide, geometry).values;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(pass, narrow, geometry).pixels, narrow_alone.pixels);
    EXPECT_EQ(run_wide(pass, wide, geometry).values, wide_alone);
  }
}

}  // namespace
}  // namespace spdld::transform

// SPDX-License-Identifier: Apache-2.0
#include "transform/image/image_pass.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "tests/unit/transform/image/images.h"

namespace spdld::transform {
namespace {

TestImage gray(int width, int height, std::vector<std::uint8_t> pixels) {
  return {width, height, 1, std::move(pixels)};
}

TEST(ImagePass, CopiesAnImageThatNothingChanges) {
  for (const int channels : {1, 3}) {
    for (const int width : {1, 2, 15, 16, 17, 64, 65, 127, 200}) {
      const TestImage image = noise(width, 3, channels);
      EXPECT_EQ(run(image, Geometry::identity(image.size())).pixels, image.pixels) << width;
    }
  }
}

TEST(ImagePass, AveragesPairsWhenItHalvesALineOfTwo) {
  const TestImage out = run(gray(2, 1, {10, 21}), resized({2, 1}, {1, 1}));
  EXPECT_EQ(out.pixels, std::vector<std::uint8_t>{16});  // 15.5 rounds up
}

// Weights 3/7, 3/7, 1/7 at the edges of a line of four.
TEST(ImagePass, WeighsPixelsByTheirDistance) {
  const TestImage out = run(gray(4, 1, {0, 100, 200, 50}), resized({4, 1}, {2, 1}));
  EXPECT_EQ(out.pixels, (std::vector<std::uint8_t>{71, 121}));
}

TEST(ImagePass, InterpolatesBetweenNeighboursWhenItEnlarges) {
  const TestImage out = run(gray(2, 1, {0, 100}), resized({2, 1}, {4, 1}));
  EXPECT_EQ(out.pixels, (std::vector<std::uint8_t>{0, 25, 75, 100}));
}

TEST(ImagePass, WithoutAntialiasLooksAtTwoNeighboursOnly) {
  const TestImage image = gray(8, 1, {9, 10, 20, 9, 9, 30, 41, 9});
  const TestImage out = run(image, resized({8, 1}, {2, 1}, Interpolation::kBilinear, false));
  EXPECT_EQ(out.pixels, (std::vector<std::uint8_t>{15, 36}));
}

TEST(ImagePass, WithoutAntialiasRepeatsTheEdges) {
  const TestImage out =
      run(gray(2, 1, {40, 80}), resized({2, 1}, {4, 1}, Interpolation::kBilinear, false));
  EXPECT_EQ(out.pixels, (std::vector<std::uint8_t>{40, 50, 70, 80}));
}

TEST(ImagePass, NearestTakesThePixelAtTheCenter) {
  const TestImage out =
      run(gray(6, 1, {1, 2, 3, 4, 5, 6}), resized({6, 1}, {2, 1}, Interpolation::kNearest));
  EXPECT_EQ(out.pixels, (std::vector<std::uint8_t>{2, 5}));
}

TEST(ImagePass, ClampsWhatBicubicOvershoots) {
  const TestImage out =
      run(gray(4, 1, {0, 0, 255, 255}), resized({4, 1}, {9, 1}, Interpolation::kBicubic));
  EXPECT_EQ(out.pixels.front(), 0);
  EXPECT_EQ(out.pixels.back(), 255);
  EXPECT_TRUE(std::is_sorted(out.pixels.begin() + 3, out.pixels.begin() + 6));
}

TEST(ImagePass, KeepsAConstantImageConstant) {
  ImagePass pass;
  for (const int level : {0, 1, 127, 254, 255}) {
    for (const auto interpolation :
         {Interpolation::kNearest, Interpolation::kBilinear, Interpolation::kBicubic}) {
      for (const Size to : {Size{1, 1}, Size{7, 31}, Size{100, 53}, Size{200, 130}}) {
        for (const bool antialias : {false, true}) {
          TestImage image = blank(101, 67, 3);
          std::fill(image.pixels.begin(), image.pixels.end(), static_cast<std::uint8_t>(level));
          const TestImage out =
              run(pass, image, resized(image.size(), to, interpolation, antialias));
          EXPECT_TRUE(std::all_of(out.pixels.begin(), out.pixels.end(),
                                  [&](std::uint8_t pixel) { return pixel == level; }))
              << level << " at " << to.width << "x" << to.height;
        }
      }
    }
  }
}

// The same filter in double precision, straight from its definition and rounded nowhere.
double exact_pixel(const TestImage& image, Size to, int x, int y, int c) {
  const double scale_x = static_cast<double>(image.width) / to.width;
  const double scale_y = static_cast<double>(image.height) / to.height;
  const auto weight = [](double distance, double scale) {
    return std::max(0.0, 1.0 - std::abs(distance) / std::max(scale, 1.0));
  };
  double sum = 0;
  double total = 0;
  for (int v = 0; v < image.height; ++v) {
    const double row = weight(v + 0.5 - (y + 0.5) * scale_y, scale_y);
    if (row == 0) continue;
    for (int u = 0; u < image.width; ++u) {
      const double w = row * weight(u + 0.5 - (x + 0.5) * scale_x, scale_x);
      sum += w * image.at(u, v, c);
      total += w;
    }
  }
  return sum / total;
}

TEST(ImagePass, StaysWithinTwoRoundingsOfTheExactFilter) {
  ImagePass pass;
  const std::pair<Size, Size> cases[] = {
      {{53, 41}, {23, 29}}, {{31, 17}, {64, 65}},  {{200, 3}, {5, 3}}, {{1, 300}, {1, 7}},
      {{300, 1}, {17, 2}},  {{64, 64}, {33, 128}}, {{1, 1}, {3, 4}},   {{150, 120}, {1, 1}},
      {{2, 90}, {90, 2}},   {{17, 33}, {16, 32}},
  };
  for (const auto& [from, to] : cases) {
    for (const int channels : {1, 3}) {
      const TestImage image = noise(from.width, from.height, channels);
      const TestImage out = run(pass, image, resized(from, to));
      for (int y = 0; y < to.height; ++y) {
        for (int x = 0; x < to.width; ++x) {
          for (int c = 0; c < channels; ++c) {
            ASSERT_NEAR(out.at(x, y, c), exact_pixel(image, to, x, y, c), 1.001)
                << from.width << "x" << from.height << " to " << to.width << "x" << to.height
                << " at " << x << "," << y << "," << c;
          }
        }
      }
    }
  }
}

TEST(ImagePass, MirrorsExactly) {
  ImagePass pass;
  for (const int channels : {1, 3}) {
    for (const int width : {1, 3, 16, 63, 64, 65, 130, 224}) {
      for (const int from : {width, 290, 70}) {
        const TestImage image = noise(from, 20, channels);
        Geometry geometry = resized(image.size(), {width, 11});
        const TestImage straight = run(pass, image, geometry);
        geometry.append_flip();
        EXPECT_EQ(run(pass, image, geometry).pixels, mirrored(straight).pixels)
            << from << " to " << width;
      }
    }
  }
}

TEST(ImagePass, GivesTheSamePixelsForAWindowAsForTheWhole) {
  ImagePass pass;
  const Rect windows[] = {{0, 0, 1, 1},    {5, 7, 40, 30},   {63, 50, 1, 9},   {0, 20, 64, 1},
                          {33, 0, 31, 60}, {-3, -4, 20, 20}, {50, 45, 33, 40}, {-5, -5, 80, 80}};
  for (const auto interpolation :
       {Interpolation::kNearest, Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (const Size from : {Size{150, 130}, Size{30, 200}, Size{64, 90}, Size{90, 60}}) {
      for (const int channels : {1, 3}) {
        const TestImage image = noise(from.width, from.height, channels);
        const Geometry whole = resized(from, {64, 60}, interpolation);
        const TestImage all = run(pass, image, whole);
        for (const Rect& window : windows) {
          for (const bool flip : {false, true}) {
            Geometry part = whole;
            part.window = window;
            part.flip = flip;
            const TestImage expected = cut(all, window);
            EXPECT_EQ(run(pass, image, part).pixels,
                      flip ? mirrored(expected).pixels : expected.pixels)
                << window.x << "," << window.y << " " << window.width << "x" << window.height;
          }
        }
      }
    }
  }
}

TEST(ImagePass, CutsWithoutAResizeAndPadsWithZeros) {
  const TestImage image = noise(20, 10, 3);
  for (const Rect& window :
       {Rect{3, 2, 9, 5}, Rect{-4, -2, 30, 14}, Rect{15, -3, 10, 5}, Rect{-200, 2, 240, 4}}) {
    Geometry geometry = Geometry::identity(image.size());
    geometry.window = window;
    EXPECT_EQ(run(image, geometry).pixels, cut(image, window).pixels);
    geometry.flip = true;
    EXPECT_EQ(run(image, geometry).pixels, mirrored(cut(image, window)).pixels);
  }
}

TEST(ImagePass, AsksForNothingWhenTheWindowLiesBesideTheImage) {
  const TestImage image = noise(20, 10, 3);
  for (const Rect& window : {Rect{20, 0, 5, 5}, Rect{0, -5, 5, 5}, Rect{-50, -50, 5, 5}}) {
    Geometry geometry = resized(image.size(), {10, 10});
    geometry.window = {window.x, window.y, window.width, window.height};
    ImagePass pass;
    std::vector<std::byte> out(75, std::byte{1});
    EXPECT_EQ(pass.begin(geometry, 3, {out.data(), {}, Layout::kNCHW}), (Rect{0, 0, 0, 0}));
    pass.finish();
    EXPECT_EQ(out, std::vector<std::byte>(75, std::byte{0}));
  }
}

TEST(ImagePass, AsksOnlyForWhatTheWindowDependsOn) {
  // Halving: output x is made of source pixels 2x - 1 to 2x + 2.
  Geometry geometry = resized({100, 80}, {50, 40});
  geometry.window = {10, 5, 10, 1};
  geometry.crop.x += 7;
  std::vector<std::byte> out(30);
  ImagePass pass;
  EXPECT_EQ(pass.begin(geometry, 3, {out.data(), {}, Layout::kNHWC}), (Rect{26, 9, 22, 4}));
  geometry.window = {0, 39, 10, 1};
  EXPECT_EQ(pass.begin(geometry, 3, {out.data(), {}, Layout::kNHWC}), (Rect{7, 77, 21, 3}));
}

TEST(ImagePass, LaysPlanesOutOneAfterTheOther) {
  ImagePass pass;
  for (const Size to : {Size{50, 40}, Size{64, 3}, Size{7, 9}, Size{129, 70}}) {
    for (const bool flip : {false, true}) {
      const TestImage image = noise(129, 70, 3);
      Geometry geometry = resized(image.size(), to);
      geometry.flip = flip;
      const TestImage interleaved = run(pass, image, geometry);
      const std::vector<std::byte> planes = run_bytes(pass, image, geometry, {}, Layout::kNCHW);
      std::size_t at = 0;
      for (int c = 0; c < 3; ++c) {
        for (int y = 0; y < to.height; ++y) {
          for (int x = 0; x < to.width; ++x) {
            ASSERT_EQ(static_cast<std::uint8_t>(planes[at++]), interleaved.at(x, y, c));
          }
        }
      }
    }
  }
}

TEST(ImagePass, ReducesALargeImageAtOnce) {
  TestImage image = blank(4000, 3000, 3);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      image.at(x, y, 0) = static_cast<std::uint8_t>(x / 16);
      image.at(x, y, 1) = static_cast<std::uint8_t>(y / 12);
      image.at(x, y, 2) = static_cast<std::uint8_t>((x + y) % 2 * 255);
    }
  }
  const TestImage out = run(image, resized(image.size(), {32, 32}));
  for (int y = 1; y < 31; ++y) {
    for (int x = 1; x < 31; ++x) {
      EXPECT_NEAR(out.at(x, y, 0), (x + 0.5) * 125 / 16 - 0.5, 1);
      EXPECT_NEAR(out.at(x, y, 1), (y + 0.5) * 93.75 / 12 - 0.5, 1);
      EXPECT_NEAR(out.at(x, y, 2), 127.5, 1);
    }
  }
}

TEST(ImagePass, ForgetsAnImageThatFailedHalfWay) {
  const TestImage image = noise(90, 60, 3);
  const Geometry geometry = resized(image.size(), {30, 31});
  const TestImage expected = run(image, geometry);
  ImagePass pass;
  std::vector<std::byte> lost(70 * 70 * 3);
  const Geometry other = resized(image.size(), {70, 70});
  const Rect region = pass.begin(other, 3, {lost.data(), {}, Layout::kNCHW});
  ASSERT_GT(region.height, 7);
  for (int y = 0; y < 7; ++y) pass.row(y, image.pixels.data());
  EXPECT_EQ(run(pass, image, geometry).pixels, expected.pixels);
}

TEST(ImagePass, GivesTheSameForOneImageWhateverCameBefore) {
  ImagePass used;
  KeyedRng rng(5);
  for (int i = 0; i < 60; ++i) {
    const auto side = [&](std::uint64_t most) { return static_cast<int>(rng.below(most)) + 1; };
    const TestImage image = noise(side(120), side(120), rng.below(2) == 0 ? 1 : 3, rng.next());
    Geometry geometry = resized(image.size(), {side(90), side(90)});
    geometry.window = {side(40) - 20, side(40) - 20, side(80), side(80)};
    geometry.flip = rng.below(2) == 0;
    EXPECT_EQ(run(used, image, geometry).pixels, run(image, geometry).pixels);
  }
}

TEST(ImagePassDeathTest, RefusesRowsOutOfOrderAndTooFew) {
  const TestImage image = noise(10, 10, 3);
  std::vector<std::byte> out(75);
  ImagePass pass;
  pass.begin(resized(image.size(), {5, 5}), 3, {out.data(), {}, Layout::kNCHW});
  pass.row(0, image.pixels.data());
  EXPECT_DEATH(pass.row(2, image.pixels.data()), "next_source_row_");
  EXPECT_DEATH(pass.finish(), "region_height_");
}

}  // namespace
}  // namespace spdld::transform

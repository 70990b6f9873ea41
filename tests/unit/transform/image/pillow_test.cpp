// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string_view>

#include "tests/unit/transform/image/images.h"

namespace spdld::transform {
namespace {

// A picture with edges, gradients and wrap-arounds that any language can make.
TestImage image_pattern(Size size, int channels) {
  TestImage image = blank(size.width, size.height, channels);
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.at(x, y, c) = static_cast<std::uint8_t>(x * x * 7 + y * 13 + c * 31 + x * y * 3 +
                                                      (x / 5) * (y / 3) * 41);
      }
    }
  }
  return image;
}

std::uint64_t digest(const TestImage& image) {
  return name_key({reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()});
}

struct Golden {
  Size from;
  int channels;
  Size to;
  Interpolation interpolation;
  std::uint64_t digest;  // FNV-1a of Image.fromarray(image_pattern).resize(to, ...).tobytes()
};

// Made with Pillow 9.4.0.
constexpr Golden kGolden[] = {
    {{290, 270}, 3, {224, 224}, Interpolation::kBilinear, 0x279d16e1cb69f232},
    {{500, 375}, 3, {224, 224}, Interpolation::kBilinear, 0x33f64541ffcf0cc8},
    {{97, 61}, 3, {224, 224}, Interpolation::kBilinear, 0xb2fbd057639a9f57},
    {{301, 200}, 3, {100, 67}, Interpolation::kBilinear, 0x2e3601008aa80d5a},
    {{640, 480}, 3, {32, 32}, Interpolation::kBilinear, 0xe7675376e90f6008},
    {{1000, 700}, 1, {64, 65}, Interpolation::kBilinear, 0xcaed59620f4996a9},
    {{131, 77}, 1, {224, 199}, Interpolation::kBilinear, 0x1b11dd5264e6066e},
    {{224, 300}, 3, {224, 100}, Interpolation::kBilinear, 0x3cf22ccf4c21781e},
    {{300, 224}, 3, {100, 224}, Interpolation::kBilinear, 0x6443d435b049b1bd},
    {{290, 270}, 3, {224, 224}, Interpolation::kBicubic, 0x412dfba6a9298775},
    {{160, 386}, 3, {224, 224}, Interpolation::kBicubic, 0x627d0856d8a4bc80},
    {{100, 50}, 3, {150, 25}, Interpolation::kBicubic, 0xf98e8c43bfcf2e30},
    {{50, 40}, 3, {131, 97}, Interpolation::kBicubic, 0x9dbb4268e828a11a},
    {{640, 480}, 3, {31, 17}, Interpolation::kBicubic, 0xa97f84d847f87f05},
    {{200, 150}, 1, {60, 333}, Interpolation::kBicubic, 0x7409a412ffd292c7},
    {{290, 270}, 3, {224, 224}, Interpolation::kNearest, 0x6327dff12443bb29},
    {{390, 128}, 3, {224, 224}, Interpolation::kNearest, 0x773382d9e19ec6ad},
    {{40, 30}, 1, {111, 99}, Interpolation::kNearest, 0xe17420deccf0b1e5},
    {{1, 1}, 3, {7, 5}, Interpolation::kBilinear, 0x286e4f7a2debb890},
    {{1, 5000}, 3, {3, 50}, Interpolation::kBilinear, 0xc8eb10e0ed41ec0f},
    {{5000, 1}, 3, {50, 3}, Interpolation::kBicubic, 0xa2bd2573ab544a55},
    {{3, 2}, 3, {2, 3}, Interpolation::kBilinear, 0xfdcd6be456736616},
};

TEST(PillowParity, ResizesToTheSameBytes) {
  ImagePass pass;
  for (const Golden& golden : kGolden) {
    const TestImage out = run(pass, image_pattern(golden.from, golden.channels),
                              resized(golden.from, golden.to, golden.interpolation));
    EXPECT_EQ(digest(out), golden.digest)
        << golden.from.width << "x" << golden.from.height << " to " << golden.to.width << "x"
        << golden.to.height << ", interpolation " << static_cast<int>(golden.interpolation);
  }
}

TEST(PillowParity, ResizesACropAsIfItWereTheWholeImage) {
  const TestImage image = noise(120, 90, 3);
  Geometry geometry = Geometry::identity(image.size());
  ASSERT_TRUE(geometry.append_crop({17, 9, 71, 66}));
  ASSERT_TRUE(geometry.append_resize({40, 41}, Interpolation::kBilinear, true));
  const TestImage part = cut(image, {17, 9, 71, 66});
  EXPECT_EQ(run(image, geometry).pixels, run(part, resized(part.size(), {40, 41})).pixels);
}

}  // namespace
}  // namespace spdld::transform

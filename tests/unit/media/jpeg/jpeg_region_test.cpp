// SPDX-License-Identifier: Apache-2.0
// A region's pixels are those of a full decode, byte for byte: fusion must not change a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/image/pixels.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using JpegKind = JpegRecipe::Kind;

struct Sampling {
  const char* name;
  int h;
  int v;
};

constexpr std::array kSamplings = {Sampling{"4:4:4", 1, 1}, Sampling{"4:2:2", 2, 1},
                                   Sampling{"4:2:0", 2, 2}, Sampling{"4:4:0", 1, 2},
                                   Sampling{"4:1:1", 4, 1}, Sampling{"4:1:0", 4, 2},
                                   Sampling{"1x4", 1, 4}};

// Every start with several lengths along one side, at random places along the other.
std::vector<Rect> regions_near_every_edge(Size size, KeyedRng rng) {
  const auto below = [&rng](int bound) {
    return static_cast<int>(rng.below(static_cast<std::uint64_t>(bound)));
  };
  std::vector<Rect> regions;
  for (int x = 0; x < size.width; ++x) {
    for (const int wanted : {1, 2, 5, 16, 33, size.width}) {
      const int y = below(size.height);
      regions.push_back({x, y, std::min(wanted, size.width - x), 1 + below(size.height - y)});
    }
  }
  for (int y = 0; y < size.height; ++y) {
    for (const int wanted : {1, 2, 3, 8, 17, size.height}) {
      const int x = below(size.width);
      regions.push_back({x, y, 1 + below(size.width - x), std::min(wanted, size.height - y)});
    }
  }
  return regions;
}

void expect_regions_equal_full(const JpegRecipe& recipe, ColorMode mode, const std::string& what) {
  const Bytes jpeg = make_jpeg(recipe);
  const int channels = ImageMode::of(mode).channels;
  const auto decoder = make_decoder(mode);
  const Result<Picture> full = read_whole(*decoder, jpeg, channels);
  ASSERT_TRUE(full.has_value()) << what << ": " << full.error().message();
  ASSERT_EQ(full->width, recipe.width);
  ASSERT_EQ(full->height, recipe.height);
  if (recipe.kind != JpegKind::kCmyk && recipe.kind != JpegKind::kYcck) {
    ASSERT_EQ(full->pixels, bare_decode(jpeg, channels)) << what;
  }
  for (const Rect& region :
       regions_near_every_edge({recipe.width, recipe.height}, KeyedRng(recipe.seed))) {
    const Result<Picture> part = read_region(*decoder, jpeg, region, channels);
    ASSERT_TRUE(part.has_value()) << what << ": " << part.error().message();
    ASSERT_EQ(*part, full->cut(region))
        << what << " of " << recipe.width << "x" << recipe.height << ", region " << region.x << ","
        << region.y << " " << region.width << "x" << region.height;
  }
}

// What a sanitizer looks for does not hang on the size.
#ifdef SPDLD_SANITIZED
const std::vector<Size> kSizes{{35, 27}};
#else
const std::vector<Size> kSizes{{83, 67}, {64, 48}, {50, 97}};
#endif

void expect_exact_in_every_sampling(JpegRecipe recipe) {
  for (const Sampling& sampling : kSamplings) {
    recipe.luma_h = sampling.h;
    recipe.luma_v = sampling.v;
    for (const Size size : kSizes) {
      recipe.width = size.width;
      recipe.height = size.height;
      expect_regions_equal_full(recipe, ColorMode::kRgb, sampling.name);
      expect_regions_equal_full(recipe, ColorMode::kGray, std::string(sampling.name) + " as gray");
    }
  }
}

TEST(JpegRegion, IsExactInEverySamplingOfABaselineImage) { expect_exact_in_every_sampling({}); }

TEST(JpegRegion, IsExactInEverySamplingOfAProgressiveImage) {
  expect_exact_in_every_sampling({.progressive = true});
}

TEST(JpegRegion, IsExactWithAScanForEachComponent) {
  expect_exact_in_every_sampling({.interleaved = false});
}

TEST(JpegRegion, IsExactWithRestartMarkers) {
  expect_exact_in_every_sampling({.restart_interval = 3});
}

TEST(JpegRegion, IsExactInArithmeticCoding) {
  JpegRecipe recipe{.luma_h = 2, .luma_v = 2, .arithmetic = true};
  recipe.width = 83;
  recipe.height = 67;
  expect_regions_equal_full(recipe, ColorMode::kRgb, "arithmetic");
}

TEST(JpegRegion, IsExactWhereLibjpegSmoothsOverMissingScans) {
  for (const int scans : {1, 2, 4}) {
    JpegRecipe recipe{.luma_h = 2, .luma_v = 2, .progressive = true, .progressive_scans = scans};
    recipe.width = 83;
    recipe.height = 67;
    expect_regions_equal_full(recipe, ColorMode::kRgb, std::to_string(scans) + " scans");
  }
}

TEST(JpegRegion, IsExactInImagesSmallerThanABlock) {
  for (const Sampling& sampling : kSamplings) {
    for (const Size size : {Size{1, 1}, Size{2, 3}, Size{5, 9}, Size{9, 5}, Size{17, 16}}) {
      JpegRecipe recipe{.luma_h = sampling.h, .luma_v = sampling.v};
      recipe.width = size.width;
      recipe.height = size.height;
      expect_regions_equal_full(recipe, ColorMode::kRgb, sampling.name);
    }
  }
}

TEST(JpegRegion, IsExactInEveryColourSpace) {
  for (const JpegKind kind : {JpegKind::kGray, JpegKind::kRgb, JpegKind::kCmyk, JpegKind::kYcck}) {
    JpegRecipe recipe{.kind = kind};
    recipe.width = 83;
    recipe.height = 67;
    recipe.luma_h = recipe.luma_v = kind == JpegKind::kYcck ? 2 : 1;
    const std::string what = "kind " + std::to_string(static_cast<int>(kind));
    expect_regions_equal_full(recipe, ColorMode::kRgb, what);
    expect_regions_equal_full(recipe, ColorMode::kGray, what + " as gray");
  }
}

TEST(JpegRegion, IsExactInAGrayImageWithSamplingFactors) {
  JpegRecipe recipe{.kind = JpegKind::kGray, .luma_h = 2, .luma_v = 2};
  recipe.width = 83;
  recipe.height = 67;
  expect_regions_equal_full(recipe, ColorMode::kRgb, "gray 2x2");
}

TEST(JpegRegion, IsExactInATwelveMegapixelImage) {
  JpegRecipe recipe{.luma_h = 2, .luma_v = 2, .quality = 60};
  recipe.width = 4001;
  recipe.height = 3003;
  const Bytes jpeg = make_jpeg(recipe);
  const auto decoder = make_decoder();
  const Result<Picture> full = read_whole(*decoder, jpeg);
  ASSERT_TRUE(full.has_value());
  for (const Rect& region : {Rect{1999, 1501, 224, 224}, Rect{3777, 2779, 224, 224}}) {
    const Result<Picture> part = read_region(*decoder, jpeg, region);
    ASSERT_TRUE(part.has_value());
    EXPECT_TRUE(*part == full->cut(region));
  }
}

TEST(JpegColour, OfCmykIsThatOfPillow) {
  for (const JpegKind kind : {JpegKind::kCmyk, JpegKind::kYcck}) {
    const Bytes jpeg = make_jpeg({.kind = kind});
    const std::vector<std::uint8_t> cmyk = bare_decode(jpeg, 4);
    const Result<Picture> rgb = read_whole(*make_decoder(), jpeg);
    const Result<Picture> gray = read_whole(*make_decoder(ColorMode::kGray), jpeg, 1);
    ASSERT_TRUE(rgb.has_value() && gray.has_value());
    ASSERT_EQ(rgb->pixels.size() / 3, cmyk.size() / 4);
    for (std::size_t i = 0; i < cmyk.size() / 4; ++i) {
      // Stored inverted: the product of the light that ink and black leave, rounded.
      std::array<unsigned, 3> expected{};
      for (int c = 0; c < 3; ++c) {
        const unsigned key = cmyk[i * 4 + 3];
        const unsigned absorbed = (2 * (255 - cmyk[i * 4 + c]) * key + 255) / 510;
        expected[c] = key - absorbed;
        ASSERT_EQ(rgb->pixels[i * 3 + c], expected[c]) << "pixel " << i;
      }
      ASSERT_EQ(gray->pixels[i], luma(expected[0], expected[1], expected[2])) << "pixel " << i;
    }
  }
}

TEST(JpegColour, OfGrayIsTheSameInAllChannels) {
  const Bytes jpeg = make_jpeg({.kind = JpegKind::kGray});
  const Result<Picture> rgb = read_whole(*make_decoder(), jpeg);
  const Result<Picture> gray = read_whole(*make_decoder(ColorMode::kGray), jpeg, 1);
  ASSERT_TRUE(rgb.has_value() && gray.has_value());
  for (std::size_t i = 0; i < gray->pixels.size(); ++i) {
    for (int c = 0; c < 3; ++c) ASSERT_EQ(rgb->pixels[i * 3 + c], gray->pixels[i]);
  }
}

}  // namespace
}  // namespace spdld::media::test

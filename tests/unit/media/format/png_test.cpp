// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "media/image/pixels.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

std::vector<std::uint8_t> some_palette(int colours) {
  std::vector<std::uint8_t> palette;
  for (int i = 0; i < colours; ++i) {
    for (const int factor : {37, 91, 151}) {
      palette.push_back(static_cast<std::uint8_t>(i * factor + factor));
    }
  }
  return palette;
}

// What the file's samples mean in 8-bit RGB: scaled up to 8 bits, or their high byte; without
// alpha.
std::array<unsigned, 3> meaning(const PngRecipe& recipe, int x, int y) {
  std::array<unsigned, 3> rgb{};
  for (int c = 0; c < 3; ++c) {
    const int channel = recipe.color_type == 2 || recipe.color_type == 6 ? c : 0;
    const unsigned value = recipe.sample(x, y, channel);
    if (recipe.color_type == 3) {
      rgb[c] = recipe.palette[value * 3 + static_cast<unsigned>(c)];
    } else if (recipe.bit_depth == 16) {
      rgb[c] = value >> 8;
    } else {
      rgb[c] = value * 255 / ((1U << recipe.bit_depth) - 1);
    }
  }
  return rgb;
}

void expect_meaning(const PngRecipe& recipe) {
  SCOPED_TRACE(::testing::Message() << "colour type " << recipe.color_type << ", "
                                    << recipe.bit_depth << " bits, interlaced " << recipe.interlaced
                                    << ", " << recipe.width << "x" << recipe.height);
  const Bytes png = make_png(recipe);
  const auto rgb_decoder = make_decoder();
  const auto gray_decoder = make_decoder(ColorMode::kGray);
  const Result<Picture> rgb = read_whole(*rgb_decoder, png);
  const Result<Picture> gray = read_whole(*gray_decoder, png, 1);
  ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
  ASSERT_TRUE(gray.has_value()) << gray.error().message();
  ASSERT_EQ(rgb->width, recipe.width);
  ASSERT_EQ(rgb->height, recipe.height);
  for (int y = 0; y < recipe.height; ++y) {
    for (int x = 0; x < recipe.width; ++x) {
      const std::array<unsigned, 3> expected = meaning(recipe, x, y);
      for (int c = 0; c < 3; ++c) ASSERT_EQ(rgb->at(x, y)[c], expected[c]) << x << "," << y;
      ASSERT_EQ(*gray->at(x, y), luma(expected[0], expected[1], expected[2])) << x << "," << y;
    }
  }
  for (const Rect& region : {Rect{0, 0, 1, 1}, Rect{recipe.width / 2, recipe.height / 3,
                                                    recipe.width - recipe.width / 2, 1}}) {
    EXPECT_EQ(*read_region(*rgb_decoder, png, region), rgb->cut(region));
    EXPECT_EQ(*read_region(*gray_decoder, png, region, 1), gray->cut(region));
  }
}

TEST(Png, GivesThePixelsOfEveryColourTypeDepthAndInterlacing) {
  struct Format {
    int color_type;
    std::vector<int> depths;
  };
  for (const Format& format : {Format{0, {1, 2, 4, 8, 16}}, Format{2, {8, 16}},
                               Format{3, {1, 2, 4, 8}}, Format{4, {8, 16}}, Format{6, {8, 16}}}) {
    for (const int depth : format.depths) {
      for (const bool interlaced : {false, true}) {
        for (const Size size : {Size{19, 13}, Size{1, 1}, Size{3, 9}, Size{64, 5}}) {
          PngRecipe recipe{.width = size.width,
                           .height = size.height,
                           .color_type = format.color_type,
                           .bit_depth = depth,
                           .interlaced = interlaced};
          if (format.color_type == 3) recipe.palette = some_palette(1 << depth);
          expect_meaning(recipe);
        }
      }
    }
  }
}

TEST(Png, DropsTransparencyWithoutBlending) {
  const PngRecipe plain{.color_type = 3, .bit_depth = 8, .palette = some_palette(16)};
  const Bytes png = make_png(plain);
  // tRNS belongs between the palette and the data.
  PngWriter chunk;
  const std::size_t signature = chunk.bytes().size();
  chunk.chunk("tRNS", Bytes(16, std::byte{0}));
  Bytes transparent = png;
  const std::size_t data = 8 + 25 + 12 + 16 * 3;
  transparent.insert(transparent.begin() + static_cast<std::ptrdiff_t>(data),
                     chunk.bytes().begin() + static_cast<std::ptrdiff_t>(signature),
                     chunk.bytes().end());
  const Result<Picture> expected = read_whole(*make_decoder(), png);
  const Result<Picture> read = read_whole(*make_decoder(), transparent);
  ASSERT_TRUE(expected.has_value() && read.has_value()) << read.error().message();
  EXPECT_EQ(*read, *expected);
}

TEST(Png, IsIndependentOfTheImageBefore) {
  const auto decoder = make_decoder();
  const Bytes first = make_png({.seed = 1});
  const Bytes second = make_png({.seed = 2});
  const Result<Picture> alone = read_whole(*make_decoder(), second);
  ASSERT_TRUE(read_whole(*decoder, first).has_value());
  const Result<Picture> after = read_whole(*decoder, second);
  ASSERT_TRUE(alone.has_value() && after.has_value());
  EXPECT_EQ(*after, *alone);
}

TEST(Png, MayCarryOtherChunks) {
  PngWriter writer;
  const Bytes text = {std::byte{'k'}, std::byte{0}, std::byte{'v'}};
  const Bytes broken_profile(9, std::byte{'x'});
  const Bytes row = {std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3}};
  const Bytes png = writer.header(1, 1, 8, 2)
                        .chunk("iCCP", broken_profile)
                        .chunk("tEXt", text)
                        .data(row)
                        .chunk("prIV", text)
                        .end();
  const Result<Picture> picture = read_whole(*make_decoder(), png);
  ASSERT_TRUE(picture.has_value()) << picture.error().message();
  EXPECT_EQ(picture->pixels, (std::vector<std::uint8_t>{1, 2, 3}));
}

}  // namespace
}  // namespace spdld::media::test

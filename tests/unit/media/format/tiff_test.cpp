// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/image/pixels.h"
#include "tests/unit/media/format/tiff_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

constexpr unsigned kExtraSamples = 338;

// What the file's samples mean in 8-bit RGB, without alpha.
std::array<unsigned, 3> meaning(const TiffRecipe& recipe, int x, int y) {
  const auto byte = [&](unsigned c) {
    const unsigned sample = recipe.sample(x, y, c);
    return recipe.bits == 16 ? sample >> 8 : sample;
  };
  const unsigned first = recipe.sample(x, y, 0);
  const unsigned most = (1U << recipe.bits) - 1;
  switch (recipe.photometric) {
    case 0:
    case 1: {
      const unsigned light = recipe.photometric == 0 ? most - first : first;
      const unsigned gray = recipe.bits == 16 ? light >> 8 : light * 255 / most;
      return {gray, gray, gray};
    }
    case 2: return {byte(0), byte(1), byte(2)};
    case 3: {
      const std::vector<std::uint32_t> map = some_color_map(recipe.bits);
      return {map[first] >> 8, map[most + 1 + first] >> 8, map[2 * (most + 1) + first] >> 8};
    }
    default: {
      const unsigned light = 255 - byte(3);
      const auto ink = [&](unsigned c) { return light - multiply_255(byte(c), light); };
      return {ink(0), ink(1), ink(2)};
    }
  }
}

void expect_meaning(const TiffRecipe& recipe) {
  SCOPED_TRACE(::testing::Message()
               << "photometric " << recipe.photometric << ", " << recipe.samples << " samples of "
               << recipe.bits << " bits, compression " << recipe.compression << ", strips of "
               << recipe.rows_per_strip << ", tiles of " << recipe.tile.width << "x"
               << recipe.tile.height << ", planar " << recipe.planar << ", differences "
               << recipe.differences << ", big-endian " << recipe.big_endian);
  const Bytes tiff = make_tiff_file(recipe);
  const auto decoder = make_decoder();
  const Result<Picture> rgb = read_whole(*decoder, tiff);
  ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
  ASSERT_EQ((Size{rgb->width, rgb->height}), (Size{recipe.width, recipe.height}));
  for (int y = 0; y < recipe.height; ++y) {
    for (int x = 0; x < recipe.width; ++x) {
      const std::array<unsigned, 3> expected = meaning(recipe, x, y);
      for (int c = 0; c < 3; ++c) ASSERT_EQ(rgb->at(x, y)[c], expected[c]) << x << "," << y;
    }
  }
  for (const Rect& region :
       {Rect{0, 0, 1, 1},
        Rect{recipe.width / 2, recipe.height / 3, recipe.width - recipe.width / 2, 9},
        Rect{15, 7, 3, 13}})
    EXPECT_EQ(*read_region(*decoder, tiff, region), rgb->cut(region));
}

struct TiffKind {
  unsigned photometric;
  unsigned samples;
  std::vector<unsigned> bits;
};

const std::vector<TiffKind> kTiffKinds = {
    {0, 1, {1, 2, 4, 8, 16}}, {1, 1, {1, 2, 4, 8, 16}}, {2, 3, {8, 16}}, {2, 4, {8, 16}},
    {3, 1, {1, 2, 4, 8}},     {5, 4, {8, 16}},          {1, 2, {8, 16}}, {2, 6, {8}}};

TEST(Tiff, GivesThePixelsOfEveryKindDepthAndCompression) {
  for (const TiffKind& kind : kTiffKinds) {
    for (const unsigned bits : kind.bits) {
      for (const unsigned compression : {1U, 5U, 8U, 32773U}) {
        for (const bool big_endian : {false, true}) {
          expect_meaning({.photometric = kind.photometric,
                          .samples = kind.samples,
                          .bits = bits,
                          .compression = compression,
                          .rows_per_strip = 8,
                          .big_endian = big_endian});
        }
      }
    }
  }
}

TEST(Tiff, GivesThePixelsOfStripsTilesAndPlanes) {
  for (const TiffKind& kind : kTiffKinds) {
    for (const unsigned compression : {1U, 5U, 8U, 32773U}) {
      for (const bool planar : {false, true}) {
        TiffRecipe recipe{.photometric = kind.photometric,
                          .samples = kind.samples,
                          .bits = kind.bits.front(),
                          .compression = compression,
                          .planar = planar};
        expect_meaning(recipe);
        recipe.rows_per_strip = 1;
        expect_meaning(recipe);
        recipe.rows_per_strip = 0;
        recipe.tile = {16, 16};
        expect_meaning(recipe);
        recipe.tile = {64, 48};
        expect_meaning(recipe);
      }
    }
  }
}

TEST(Tiff, GivesThePixelsOfDifferences) {
  for (const TiffKind& kind : kTiffKinds) {
    for (const unsigned bits : kind.bits) {
      for (const bool big_endian : {false, true}) {
        for (const bool planar : {false, true}) {
          if (bits < 8) continue;
          expect_meaning({.photometric = kind.photometric,
                          .samples = kind.samples,
                          .bits = bits,
                          .compression = 5,
                          .rows_per_strip = 5,
                          .planar = planar,
                          .differences = true,
                          .big_endian = big_endian});
        }
      }
    }
  }
}

TEST(Tiff, GivesThePixelsOfReversedBits) {
  for (const unsigned compression : {1U, 5U, 8U, 32773U}) {
    for (const unsigned bits : {1U, 8U, 16U}) {
      expect_meaning({.photometric = 1,
                      .samples = 1,
                      .bits = bits,
                      .compression = compression,
                      .rows_per_strip = 5,
                      .bits_reversed = true});
    }
  }
}

TEST(Tiff, GivesThePixelsOfFaxCodes) {
  for (const bool t6 : {false, true}) {
    const Bytes tiff = make_tiff_file({.width = 16,
                                       .height = 10,
                                       .photometric = 0,
                                       .samples = 1,
                                       .bits = 1,
                                       .compression = t6 ? 4U : 3U,
                                       .strip = fax_codes(10, t6)});
    const Result<Picture> gray = read_whole(*make_decoder(ColorMode::kGray), tiff, 1);
    ASSERT_TRUE(gray.has_value()) << gray.error().message();
    for (int y = 0; y < 10; ++y)
      for (int x = 0; x < 16; ++x) ASSERT_EQ(*gray->at(x, y), x < 8 ? 255 : 0) << x << "," << y;
  }
}

TEST(Tiff, TakesBlackRowsOfFaxCodesForWhatTheyAre) {
  // Rows of the bytes that the decoder fills frames with, 1010'0101, to see what is left out: runs
  // of 0 white, 1 black, 1 white, 1 black, 2 white, 1 black, 1 white, 1 black pixels.
  const std::string row =
      "000000000001"
      "00110101"
      "010"
      "000111"
      "010"
      "0111"
      "010"
      "000111"
      "010";
  std::string bits;
  for (int y = 0; y < 4; ++y) bits += row;
  bits.resize((bits.size() + 7) / 8 * 8, '0');
  Bytes strip;
  for (std::size_t at = 0; at < bits.size(); at += 8)
    strip.push_back(static_cast<std::byte>(std::stoi(bits.substr(at, 8), nullptr, 2)));
  const Bytes tiff = make_tiff_file({.width = 8,
                                     .height = 4,
                                     .photometric = 0,
                                     .samples = 1,
                                     .bits = 1,
                                     .compression = 3,
                                     .strip = strip});
  const Result<Picture> gray = read_whole(*make_decoder(ColorMode::kGray), tiff, 1);
  ASSERT_TRUE(gray.has_value()) << gray.error().message();
  for (int x = 0; x < 8; ++x) EXPECT_EQ(*gray->at(x, 3), 0xA5 >> (7 - x) & 1 ? 0 : 255) << x;
}

TEST(Tiff, IsReadWhenItIsABigTiff) {
  for (const bool big_endian : {false, true}) {
    expect_meaning({.rows_per_strip = 4, .big_endian = big_endian, .big_tiff = true});
    expect_meaning(
        {.compression = 8, .tile = {16, 16}, .big_endian = big_endian, .big_tiff = true});
  }
}

TEST(Tiff, DividesColoursByTheAlphaThatTheyWereMultipliedWith) {
  TiffRecipe recipe{.samples = 4, .tags = {{kExtraSamples, {1}}}};
  const Result<Picture> rgb = read_whole(*make_decoder(), make_tiff_file(recipe));
  ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
  for (int y = 0; y < recipe.height; ++y) {
    for (int x = 0; x < recipe.width; ++x) {
      const unsigned alpha = recipe.sample(x, y, 3);
      for (unsigned c = 0; c < 3; ++c) {
        const unsigned value = recipe.sample(x, y, c);
        ASSERT_EQ(rgb->at(x, y)[c], alpha == 0 ? 0 : std::min(255U, value * 255 / alpha));
      }
    }
  }
}

TEST(Tiff, IsTurnedAsItsOrientationSays) {
  const TiffRecipe plain;
  TiffRecipe turned = plain;
  turned.tags[274] = {6};
  const Picture stored = *read_whole(*make_decoder(), make_tiff_file(plain));
  const Result<Picture> upright = read_whole(*make_decoder(), make_tiff_file(turned));
  ASSERT_TRUE(upright.has_value()) << upright.error().message();
  ASSERT_EQ((Size{upright->width, upright->height}), (Size{plain.height, plain.width}));
  EXPECT_EQ(upright->at(plain.height - 1 - 9, 3)[1], stored.at(3, 9)[1]);
  const auto as_stored = make_decoder(ColorMode::kRgb, false);
  EXPECT_EQ(*read_whole(*as_stored, make_tiff_file(turned)), stored);
}

TEST(Tiff, NeedsNoCountsForWhatIsNotCompressed) {
  const TiffRecipe plain;
  TiffRecipe without = plain;
  without.tags[279] = {};
  const Result<Picture> picture = read_whole(*make_decoder(), make_tiff_file(without));
  ASSERT_TRUE(picture.has_value()) << picture.error().message();
  EXPECT_EQ(*picture, *read_whole(*make_decoder(), make_tiff_file(plain)));
}

TEST(Tiff, LooksOnlyAtTheStripsThatARegionNeeds) {
  const TiffRecipe recipe{.compression = 8, .rows_per_strip = 8};
  Bytes tiff = make_tiff_file(recipe);
  const auto decoder = make_decoder();
  const Picture whole = *read_whole(*decoder, tiff);
  tiff[8] = std::byte{0xFF};  // how zlib's data begins, in the first strip
  EXPECT_FALSE(read_whole(*decoder, tiff).has_value());
  const Rect below{0, 8, 37, 21};
  const Result<Picture> part = read_region(*decoder, tiff, below);
  ASSERT_TRUE(part.has_value()) << part.error().message();
  EXPECT_EQ(*part, whole.cut(below));
}

}  // namespace
}  // namespace spdld::media::test

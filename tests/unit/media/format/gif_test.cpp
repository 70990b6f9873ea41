// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "media/image/pixels.h"
#include "tests/unit/media/format/bmp_maker.h"
#include "tests/unit/media/format/gif_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

// The number at a place of the canvas.
int number_at(const GifRecipe& recipe, int x, int y) {
  const GifImage& image = recipe.images.front();
  const Rect& place = image.place;
  if (x < place.x || y < place.y || x >= place.x + place.width || y >= place.y + place.height)
    return image.transparent.value_or(0);
  return image.number(x - place.x, y - place.y);
}

void expect_meaning(const GifRecipe& recipe, Size canvas) {
  const Bytes gif = make_gif(recipe);
  const auto decoder = make_decoder();
  const auto gray_decoder = make_decoder(ColorMode::kGray);
  const Result<Picture> rgb = read_whole(*decoder, gif);
  const Result<Picture> gray = read_whole(*gray_decoder, gif, 1);
  ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
  ASSERT_TRUE(gray.has_value()) << gray.error().message();
  ASSERT_EQ((Size{rgb->width, rgb->height}), canvas);
  const GifImage& image = recipe.images.front();
  std::vector<PaletteColor> palette = image.palette.empty() ? recipe.palette : image.palette;
  for (auto i = static_cast<std::uint8_t>(palette.size()); palette.size() < 256; ++i)
    palette.push_back({i, i, i});
  for (int y = 0; y < canvas.height; ++y) {
    for (int x = 0; x < canvas.width; ++x) {
      const PaletteColor color = palette[static_cast<std::size_t>(number_at(recipe, x, y))];
      ASSERT_EQ(rgb->at(x, y)[0], color.red) << x << "," << y;
      ASSERT_EQ(rgb->at(x, y)[1], color.green) << x << "," << y;
      ASSERT_EQ(rgb->at(x, y)[2], color.blue) << x << "," << y;
      ASSERT_EQ(*gray->at(x, y), luma(color.red, color.green, color.blue)) << x << "," << y;
    }
  }
  for (const Rect& region :
       {Rect{0, 0, 1, 1}, Rect{canvas.width / 2, canvas.height / 3, canvas.width - canvas.width / 2,
                               std::min(3, canvas.height - canvas.height / 3)}})
    EXPECT_EQ(*read_region(*decoder, gif, region), rgb->cut(region));
}

TEST(Gif, GivesThePixelsOfEveryDepthAndInterlacing) {
  for (const int bits : {1, 2, 4, 8}) {
    for (const bool interlaced : {false, true}) {
      for (const Size size : {Size{19, 13}, Size{1, 1}, Size{3, 9}, Size{64, 5}}) {
        expect_meaning({.canvas = size,
                        .palette = some_colors(1 << bits),
                        .images = {{.place = {0, 0, size.width, size.height},
                                    .bits = bits,
                                    .interlaced = interlaced}}},
                       size);
      }
    }
  }
}

TEST(Gif, TakesTheImagesOwnPaletteBeforeTheFiles) {
  expect_meaning({.palette = some_colors(16), .images = {{.palette = some_colors(128)}}}, {19, 13});
}

TEST(Gif, TakesNumbersWithoutAColourForGrays) {
  expect_meaning({}, {19, 13});
  expect_meaning({.palette = some_colors(4)}, {19, 13});
}

TEST(Gif, LaysTheFirstImageOnTheCanvas) {
  const GifRecipe recipe{
      .canvas = {31, 22},
      .palette = some_colors(16),
      .images = {{.place = {5, 3, 10, 8}}, {.place = {0, 0, 31, 22}, .seed = 2}}};
  expect_meaning(recipe, {31, 22});
  GifRecipe transparent = recipe;
  transparent.images[0].transparent = 7;
  expect_meaning(transparent, {31, 22});
}

TEST(Gif, HasACanvasThatHoldsTheFirstImage) {
  expect_meaning(
      {.canvas = {8, 20}, .palette = some_colors(16), .images = {{.place = {2, 3, 19, 13}}}},
      {21, 20});
}

TEST(Gif, ReadsRowsOfBothSidesOfTheImage) {
  const Bytes gif = make_gif(
      {.canvas = {31, 22}, .palette = some_colors(16), .images = {{.place = {5, 3, 10, 8}}}});
  const auto decoder = make_decoder();
  const Picture whole = *read_whole(*decoder, gif);
  for (const Rect& region : {Rect{0, 0, 5, 22}, Rect{0, 11, 31, 11}, Rect{4, 2, 2, 2},
                             Rect{14, 10, 3, 3}, Rect{7, 5, 2, 2}})
    EXPECT_EQ(*read_region(*decoder, gif, region), whole.cut(region));
}

TEST(GifTruncation, IsAFailureWhereverTheFileEnds) {
  const auto decoder = make_decoder();
  const Bytes gif =
      make_gif({.palette = some_colors(16),
                .images = {{.palette = some_colors(4), .transparent = 1}, {.seed = 2}}});
  for (std::size_t size = 1; size < gif.size(); ++size) {
    const Bytes part(gif.begin(), gif.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<Size> opened = decoder->open(part);
    ASSERT_FALSE(opened.has_value()) << size << " of " << gif.size() << " bytes";
    ASSERT_EQ(opened.error().code(), Code::kDataLoss);
    ASSERT_THAT(opened.error().message(), HasSubstr("truncated GIF: no "));
  }
}

TEST(GifTruncation, OfTheImageDataInAWholeFileIsAFailure) {
  for (const bool interlaced : {false, true}) {
    for (const int rows : {1, 5, 13}) {
      const Status status =
          failure_of(make_gif({.palette = some_colors(16),
                               .images = {{.interlaced = interlaced, .rows_left_out = rows}}}));
      EXPECT_EQ(status.code(), Code::kDataLoss) << rows;
      EXPECT_EQ(status.message(), "corrupt GIF: its image data ends before its last row");
    }
  }
}

TEST(GifCorruption, OfCodesLeavesTheDecoderReady) {
  const Bytes good = make_gif({.palette = some_colors(16)});
  Bytes bad = good;
  const std::size_t first_code = 13 + 48 + 10 + 2;
  bad[first_code] = std::byte{0xFF};  // a number that no code stands for yet
  const auto decoder = make_decoder();
  const Result<Picture> before = read_whole(*decoder, good);
  const Result<Picture> broken = read_whole(*decoder, bad);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code(), Code::kDataLoss);
  const Result<Picture> after = read_whole(*decoder, good);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(*before, *after);
}

TEST(GifStructure, ThatBreaksTheFormatIsAFailure) {
  const auto expect = [](const Bytes& gif, std::string_view why) {
    const Status status = failure_of(gif);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("corrupt GIF: " + std::string(why)));
  };
  expect(make_gif({.images = {}}), "it has no image");
  expect(make_gif({.images = {{.place = {0, 0, 0, 13}}}}), "impossible size 0x13");
  Bytes stray = make_gif({});
  stray.insert(stray.begin() + 13, std::byte{'?'});
  expect(stray, "unknown block 63");
  Bytes long_codes = make_gif({});
  long_codes[13 + 10] = std::byte{12};
  expect(long_codes, "FFmpeg says: LZW init failed");
}

TEST(GifStructure, MayCarryBytesBehindItsFirstImage) {
  Bytes gif = make_gif({.palette = some_colors(16)});
  const Result<Picture> before = read_whole(*make_decoder(), gif);
  gif.back() = std::byte{'?'};
  gif.insert(gif.end(), 50, std::byte{0x55});
  const Result<Picture> after = read_whole(*make_decoder(), gif);
  ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
  EXPECT_EQ(*before, *after);
}

TEST(GifLimits, CountThePixelsOfTheCanvas) {
  const Bytes gif = make_gif({.canvas = {10, 10}, .images = {{.place = {0, 0, 2, 2}}}});
  const Status status = failure_of(gif, {.max_pixels = 99});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("image of 10x10 = 100 pixels is over the limit of 99"));
  const Status grown = failure_of(make_gif({.canvas = {1, 1}}), {.max_pixels = 19 * 13 - 1});
  EXPECT_EQ(grown.code(), Code::kResourceExhausted);
}

TEST(GifLimits, RefuseAnImageThatClaimsMoreThanItsDataCanHold) {
  Bytes gif = make_gif({});
  for (const std::size_t at : {13U + 6U, 13U + 8U}) gif[at] = std::byte{0x7F};
  const Status status = failure_of(gif, {.max_pixels = 1'000'000'000});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("bytes of data cannot hold the 32531x32525 pixels"));
}

}  // namespace
}  // namespace spdld::media::test

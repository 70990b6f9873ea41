// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "media/image/pixels.h"
#include "tests/unit/media/format/webp_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

constexpr unsigned kAnimated = 2;
constexpr unsigned kExif = 8;
constexpr unsigned kAlpha = 0x10;

Bytes anim_chunk() { return webp_chunk("ANIM", Bytes(6, std::byte{77})); }

// Two frames, of which the first one covers a part of the canvas.
Bytes make_animation(bool alpha) {
  const Bytes first = make_webp({.width = 20, .height = 14, .alpha = alpha, .lossless = true});
  const Bytes second = make_webp({.width = 61, .height = 43, .alpha = alpha, .seed = 2});
  return make_webp_of({61, 43}, kAnimated | (alpha ? kAlpha : 0),
                      {anim_chunk(), webp_frame({10, 6, 20, 14}, webp_chunks_of(first)),
                       webp_frame({0, 0, 61, 43}, webp_chunks_of(second))});
}

TEST(Webp, GivesThePixelsThatLibwebpMakes) {
  for (const bool alpha : {false, true}) {
    for (const bool lossless : {false, true}) {
      const Bytes webp = make_webp({.alpha = alpha, .lossless = lossless});
      const Result<Picture> rgb = read_whole(*make_decoder(), webp);
      ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
      EXPECT_EQ(rgb->pixels, bare_decode_webp(webp, 3));
      const Result<Picture> gray = read_whole(*make_decoder(ColorMode::kGray), webp, 1);
      ASSERT_TRUE(gray.has_value()) << gray.error().message();
      const std::uint8_t* const pixel = rgb->at(5, 7);
      EXPECT_EQ(*gray->at(5, 7), luma(pixel[0], pixel[1], pixel[2]));
    }
  }
}

TEST(Webp, GivesARegionAsOfAWholeImage) {
  KeyedRng rng(7);
  const auto decoder = make_decoder();
  for (const WebpRecipe& recipe :
       {WebpRecipe{}, WebpRecipe{.alpha = true}, WebpRecipe{.lossless = true},
        WebpRecipe{.alpha = true, .lossless = true}, WebpRecipe{.quality = 5},
        WebpRecipe{.quality = 100}, WebpRecipe{.width = 1, .height = 1},
        WebpRecipe{.width = 2, .height = 300}, WebpRecipe{.width = 301, .height = 3}}) {
    const Bytes webp = make_webp(recipe);
    const Result<Picture> whole = read_whole(*decoder, webp);
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    for (int i = 0; i < 40; ++i) {
      Rect region;
      region.x = static_cast<int>(rng.below(static_cast<std::uint64_t>(recipe.width)));
      region.y = static_cast<int>(rng.below(static_cast<std::uint64_t>(recipe.height)));
      region.width = 1 + static_cast<int>(rng.below(recipe.width - region.x));
      region.height = 1 + static_cast<int>(rng.below(recipe.height - region.y));
      const Result<Picture> part = read_region(*decoder, webp, region);
      ASSERT_TRUE(part.has_value()) << part.error().message();
      ASSERT_EQ(*part, whole->cut(region))
          << region.x << "," << region.y << " " << region.width << "x" << region.height << " of "
          << recipe.width << "x" << recipe.height;
    }
  }
}

TEST(Webp, LaysTheFirstFrameOfAnAnimationOnABlackCanvas) {
  for (const bool alpha : {false, true}) {
    const Bytes webp = make_animation(alpha);
    const auto decoder = make_decoder();
    const Result<Picture> picture = read_whole(*decoder, webp);
    ASSERT_TRUE(picture.has_value()) << picture.error().message();
    ASSERT_EQ((Size{picture->width, picture->height}), (Size{61, 43}));
    const Result<Picture> frame = read_whole(
        *make_decoder(), make_webp({.width = 20, .height = 14, .alpha = alpha, .lossless = true}));
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(picture->cut({10, 6, 20, 14}), *frame);
    for (const Rect& beside : {Rect{0, 0, 61, 6}, Rect{0, 6, 10, 14}, Rect{30, 6, 31, 37}}) {
      const Picture black = picture->cut(beside);
      EXPECT_EQ(std::count(black.pixels.begin(), black.pixels.end(), 0),
                static_cast<std::ptrdiff_t>(black.pixels.size()));
    }
    for (const Rect& region :
         {Rect{0, 0, 61, 6}, Rect{5, 3, 20, 10}, Rect{12, 8, 3, 3}, Rect{25, 0, 36, 43}})
      EXPECT_EQ(*read_region(*decoder, webp, region), picture->cut(region));
  }
}

TEST(Webp, IsTurnedAsItsExifSays) {
  const Bytes plain = make_webp({.lossless = true});
  const Result<Picture> stored = read_whole(*make_decoder(), plain);
  ASSERT_TRUE(stored.has_value());
  for (const bool prefixed : {false, true}) {
    Bytes exif = make_tiff(6, true);
    if (prefixed) {
      constexpr std::string_view kPrefix("Exif\0\0", 6);
      const auto* const begin = reinterpret_cast<const std::byte*>(kPrefix.data());
      exif.insert(exif.begin(), begin, begin + kPrefix.size());
    }
    const Bytes webp =
        make_webp_of({61, 43}, kExif, {webp_chunks_of(plain), webp_chunk("EXIF", exif)});
    const Result<Picture> turned = read_whole(*make_decoder(), webp);
    ASSERT_TRUE(turned.has_value()) << turned.error().message();
    ASSERT_EQ((Size{turned->width, turned->height}), (Size{43, 61}));
    EXPECT_EQ(turned->at(42 - 9, 3)[1], stored->at(3, 9)[1]);
    EXPECT_EQ(*read_whole(*make_decoder(ColorMode::kRgb, false), webp), *stored);
  }
}

TEST(WebpTruncation, IsAFailureWhereverTheFileEnds) {
  const auto decoder = make_decoder();
  for (const Bytes& webp :
       {make_webp({}), make_webp({.alpha = true, .lossless = true}), make_animation(true)}) {
    for (std::size_t size = 1; size < webp.size(); size += size < 100 ? 1 : 37) {
      const Bytes part(webp.begin(), webp.begin() + static_cast<std::ptrdiff_t>(size));
      const Result<Size> opened = decoder->open(part);
      ASSERT_FALSE(opened.has_value()) << size << " of " << webp.size() << " bytes";
      ASSERT_EQ(opened.error().code(), Code::kDataLoss);
      ASSERT_THAT(opened.error().message(), HasSubstr("truncated WebP: no "));
    }
  }
}

TEST(WebpTruncation, OfTheImageDataInAWholeFileIsAFailure) {
  for (const bool lossless : {false, true}) {
    Bytes webp = make_webp({.lossless = lossless});
    const std::size_t size = webp.size() / 2 / 2 * 2;
    webp.resize(size);
    for (const auto& [at, value] :
         {std::pair<std::size_t, std::size_t>{4, size - 8}, {16, size - 20}}) {
      for (std::size_t i = 0; i < 4; ++i)
        webp[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
    }
    const Status status = failure_of(webp);
    EXPECT_EQ(status.code(), Code::kDataLoss) << status.message();
  }
}

TEST(WebpCorruption, LeavesTheDecoderReadyForTheNextImage) {
  const Bytes good = make_webp({.lossless = true});
  Bytes bad = good;
  std::fill(bad.begin() + 30, bad.end(), std::byte{0xFF});
  const auto decoder = make_decoder();
  const Result<Picture> before = read_whole(*decoder, good);
  for (int i = 0; i < 3; ++i) {
    const Result<Picture> broken = read_whole(*decoder, bad);
    ASSERT_FALSE(broken.has_value());
    EXPECT_EQ(broken.error().code(), Code::kDataLoss);
    EXPECT_THAT(broken.error().message(), HasSubstr("WebP"));
    const Result<Picture> after = read_whole(*decoder, good);
    ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
    EXPECT_EQ(*before, *after);
  }
}

TEST(WebpStructure, ThatBreaksTheFormatIsAFailure) {
  const Bytes plain = make_webp({});
  Bytes empty = plain;
  std::fill(empty.begin() + 4, empty.begin() + 8, std::byte{0});
  Bytes no_image = make_webp_of({61, 43}, 0, {webp_chunk("XYZW", Bytes(20, std::byte{1}))});
  Bytes other_size = make_webp_of({62, 43}, 0, {webp_chunks_of(plain)});
  const Bytes beyond = make_webp_of(
      {61, 43}, kAnimated, {anim_chunk(), webp_frame({2, 0, 61, 43}, webp_chunks_of(plain))});
  for (const Bytes& webp : {empty, no_image, other_size, beyond}) {
    const Status status = failure_of(webp);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("WebP: "));
  }
}

TEST(WebpStructure, MayCarryBytesBehindItsEnd) {
  Bytes webp = make_webp({});
  const Result<Picture> before = read_whole(*make_decoder(), webp);
  webp.insert(webp.end(), 50, std::byte{0x55});
  const Result<Picture> after = read_whole(*make_decoder(), webp);
  ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
  EXPECT_EQ(*before, *after);
}

TEST(WebpLimits, RefuseTooManyPixelsWithTheNumbersAndTheWayOut) {
  const Status status = failure_of(make_webp({.width = 10, .height = 10}), {.max_pixels = 99});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "image of 10x10 = 100 pixels is over the limit of 99; raise decode_image.max_pixels to "
            "read it");
}

TEST(WebpLimits, CountThePixelsOfTheCanvas) {
  const Bytes frame = make_webp({.width = 2, .height = 2});
  const Bytes webp = make_webp_of({1 << 24, 100}, kAnimated,
                                  {anim_chunk(), webp_frame({0, 0, 2, 2}, webp_chunks_of(frame))});
  const Status status = failure_of(webp);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("image of 16777216x100 = "));
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "media/image/pixels.h"
#include "tests/unit/media/format/avif_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

// Without alpha, which is dropped and not blended.
std::vector<std::uint8_t> bare_rgb(const Bytes& avif, bool alpha) {
  const std::vector<std::uint8_t> all = bare_decode_avif(avif, alpha ? 4 : 3, 8);
  if (!alpha) return all;
  std::vector<std::uint8_t> rgb;
  for (std::size_t i = 0; i < all.size(); i += 4)
    rgb.insert(rgb.end(), all.begin() + static_cast<std::ptrdiff_t>(i),
               all.begin() + static_cast<std::ptrdiff_t>(i) + 3);
  return rgb;
}

TEST(Avif, GivesThePixelsThatLibavifMakes) {
  for (const int depth : {8, 10, 12}) {
    for (const int chroma : {400, 420, 422, 444}) {
      for (const bool alpha : {false, true}) {
        for (const bool full_range : {false, true}) {
          SCOPED_TRACE(::testing::Message() << depth << " bits, " << chroma << ", alpha " << alpha
                                            << ", full range " << full_range);
          const Bytes avif = make_avif(
              {.depth = depth, .chroma = chroma, .alpha = alpha, .full_range = full_range});
          const Result<Picture> rgb = read_whole(*make_decoder(), avif);
          ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
          EXPECT_EQ(rgb->pixels, bare_rgb(avif, alpha));
          const Result<Picture> gray = read_whole(*make_decoder(ColorMode::kGray), avif, 1);
          ASSERT_TRUE(gray.has_value()) << gray.error().message();
          const std::uint8_t* const pixel = rgb->at(5, 7);
          EXPECT_EQ(*gray->at(5, 7), luma(pixel[0], pixel[1], pixel[2]));
        }
      }
    }
  }
}

TEST(Avif, GivesARegionAsOfAWholeImage) {
  KeyedRng rng(7);
  const auto decoder = make_decoder();
  for (const AvifRecipe& recipe :
       {AvifRecipe{}, AvifRecipe{.chroma = 420}, AvifRecipe{.chroma = 422, .alpha = true},
        AvifRecipe{.depth = 10, .chroma = 420}, AvifRecipe{.depth = 12, .chroma = 400},
        AvifRecipe{.width = 1, .height = 1, .chroma = 420},
        AvifRecipe{.width = 64, .height = 64, .chroma = 420, .columns = 2}}) {
    const Bytes avif = make_avif(recipe);
    const Result<Picture> whole = read_whole(*decoder, avif);
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    for (int i = 0; i < 10; ++i) {
      Rect region;
      region.x = static_cast<int>(rng.below(static_cast<std::uint64_t>(whole->width)));
      region.y = static_cast<int>(rng.below(static_cast<std::uint64_t>(whole->height)));
      region.width = 1 + static_cast<int>(rng.below(whole->width - region.x));
      region.height = 1 + static_cast<int>(rng.below(whole->height - region.y));
      const Result<Picture> part = read_region(*decoder, avif, region);
      ASSERT_TRUE(part.has_value()) << part.error().message();
      ASSERT_EQ(*part, whole->cut(region))
          << region.x << "," << region.y << " " << region.width << "x" << region.height;
    }
  }
}

TEST(Avif, GivesGridsWholeAndOfSequencesTheFirstImage) {
  for (const AvifRecipe& recipe :
       {AvifRecipe{.width = 64, .height = 64, .columns = 2}, AvifRecipe{.images = 3}}) {
    const Bytes avif = make_avif(recipe);
    const Result<Picture> rgb = read_whole(*make_decoder(), avif);
    ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
    EXPECT_EQ(rgb->width, recipe.width * recipe.columns);
    EXPECT_EQ(rgb->pixels, bare_decode_avif(avif, 3, 8));
  }
}

// `picture` turned to the left so often, then mirrored.
Picture turned(Picture picture, int quarters, std::optional<int> mirror) {
  for (int i = 0; i < quarters; ++i) {
    Picture next{picture.height, picture.width, 3, {}};
    next.pixels.resize(picture.pixels.size());
    for (int y = 0; y < next.height; ++y)
      for (int x = 0; x < next.width; ++x)
        std::copy_n(picture.at(picture.width - 1 - y, x), 3, next.at(x, y));
    picture = next;
  }
  if (!mirror) return picture;
  Picture next = picture;
  for (int y = 0; y < next.height; ++y) {
    for (int x = 0; x < next.width; ++x) {
      std::copy_n(picture.at(*mirror == 1 ? picture.width - 1 - x : x,
                             *mirror == 0 ? picture.height - 1 - y : y),
                  3, next.at(x, y));
    }
  }
  return next;
}

TEST(Avif, IsTurnedAndMirroredAsItsPropertiesSay) {
  const Picture stored = *read_whole(*make_decoder(), make_avif({}));
  for (const int irot : {0, 1, 2, 3}) {
    for (const std::optional<int> imir :
         {std::optional<int>(), std::optional(0), std::optional(1)}) {
      const Bytes avif = make_avif({.irot = irot, .imir = imir});
      const Result<Picture> upright = read_whole(*make_decoder(), avif);
      ASSERT_TRUE(upright.has_value()) << upright.error().message();
      EXPECT_EQ(*upright, turned(stored, irot, imir)) << irot << ", " << imir.value_or(-1);
      EXPECT_EQ(*read_whole(*make_decoder(ColorMode::kRgb, false), avif), stored);
    }
  }
}

TEST(Avif, IsTurnedAsItsExifSaysOnlyWithoutProperties) {
  const Picture stored = *read_whole(*make_decoder(), make_avif({}));
  const Bytes by_exif = make_avif({.exif = make_tiff(8, true)});
  const Result<Picture> upright = read_whole(*make_decoder(), by_exif);
  ASSERT_TRUE(upright.has_value()) << upright.error().message();
  EXPECT_EQ(*upright, turned(stored, 1, std::nullopt));
  const Bytes by_both = make_avif({.irot = 2, .exif = make_tiff(8, true)});
  EXPECT_EQ(*read_whole(*make_decoder(), by_both), turned(stored, 2, std::nullopt));
}

TEST(AvifTruncation, IsAFailureWhereverTheFileEnds) {
  const auto decoder = make_decoder();
  for (const Bytes& avif : {make_avif({.alpha = true}), make_avif({.images = 2})}) {
    for (std::size_t size = 8; size < avif.size(); size += size < 100 ? 1 : 13) {
      const Bytes part(avif.begin(), avif.begin() + static_cast<std::ptrdiff_t>(size));
      const Result<Size> opened = decoder->open(part);
      ASSERT_FALSE(opened.has_value()) << size << " of " << avif.size() << " bytes";
      ASSERT_EQ(opened.error().code(), Code::kDataLoss);
      ASSERT_THAT(opened.error().message(), HasSubstr("AVIF: "));
    }
  }
}

TEST(AvifCorruption, LeavesTheDecoderReadyForTheNextImage) {
  const Bytes good = make_avif({});
  Bytes bad = good;
  const std::string_view text(reinterpret_cast<const char*>(bad.data()), bad.size());
  const std::size_t data = text.find("mdat") + 4;
  std::fill(bad.begin() + static_cast<std::ptrdiff_t>(data), bad.end(), std::byte{0xFF});
  const auto decoder = make_decoder();
  const Result<Picture> before = read_whole(*decoder, good);
  for (int i = 0; i < 3; ++i) {
    const Result<Picture> broken = read_whole(*decoder, bad);
    ASSERT_FALSE(broken.has_value());
    EXPECT_EQ(broken.error().code(), Code::kDataLoss);
    EXPECT_THAT(broken.error().message(), HasSubstr("corrupt AVIF: libavif says: "));
    const Result<Picture> after = read_whole(*decoder, good);
    ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
    EXPECT_EQ(*before, *after);
  }
}

TEST(AvifCorruption, OfABoxThatIsLargerThanItsParentIsTheData) {
  Bytes avif = make_avif({});
  const std::string_view text(reinterpret_cast<const char*>(avif.data()), avif.size());
  avif[text.find("ipco") - 3] = std::byte{1};  // of the box's length
  const Status status = failure_of(avif);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("corrupt AVIF: libavif says: "));
}

// A good file with the size in its `ispe` property replaced.
Bytes with_size(std::uint32_t width, std::uint32_t height) {
  Bytes avif = make_avif({});
  const std::string_view text(reinterpret_cast<const char*>(avif.data()), avif.size());
  const std::size_t size = text.find("ispe") + 8;
  for (std::size_t i = 0; i < 4; ++i) {
    avif[size + i] = static_cast<std::byte>(width >> (24 - 8 * i) & 0xFF);
    avif[size + 4 + i] = static_cast<std::byte>(height >> (24 - 8 * i) & 0xFF);
  }
  return avif;
}

TEST(AvifLimits, RefuseTooManyPixelsBeforeTheyAreDecoded) {
  const Status status = failure_of(with_size(12000, 12000), {.max_pixels = 100'000'000});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "image of 12000x12000 = 144000000 pixels is over the limit of 100000000; raise "
            "decode_image.max_pixels to read it");
}

TEST(AvifLimits, RefuseWhatLibavifCannotTakeWhateverTheLimitSays) {
  const Status status = failure_of(with_size(40000, 40000), {.max_pixels = 2'000'000'000});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("AVIF too large, whatever decode_image.max_pixels says"));
}

TEST(AvifLimits, KeepTheDecoderFromFramesThatAreMuchLargerThanTheHeaderSays) {
  Bytes avif = make_avif({.width = 1000, .height = 700});
  const std::string_view text(reinterpret_cast<const char*>(avif.data()), avif.size());
  const std::size_t size = text.find("ispe") + 8;
  for (const std::size_t at : {size + 2, size + 6}) {
    avif[at] = std::byte{0};
    avif[at + 1] = std::byte{16};
  }
  const Status status = failure_of(avif);
  EXPECT_EQ(status.code(), Code::kDataLoss);
}

}  // namespace
}  // namespace spdld::media::test

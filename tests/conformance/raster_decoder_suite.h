// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "base/rng.h"
#include "media/image/image_limits.h"
#include "media/image/raster_decoder.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/pixels_of.h"

// What every RasterDecoder promises. A format's tests say which pixels are the right ones.
namespace spdld::media::test {

struct RasterKind {
  const char* name;
  std::unique_ptr<RasterDecoder> (*make)(const ImageMode& mode, const ImageLimits& limits);
  // A sound file of this size, upright; another seed makes other pixels. Empty: the kind has no
  // file of so few pixels.
  Bytes (*file)(Size size, std::uint64_t seed);
  // At the end of a file of kSize, those that hold no pixels and may be left out.
  std::size_t padding_bytes = 0;

  friend std::ostream& operator<<(std::ostream& out, const RasterKind& kind) {
    return out << kind.name;
  }
};

class RasterDecoderSuite : public ::testing::TestWithParam<RasterKind> {
 protected:
  // Neither is a multiple of a block, a strip or a byte of pixels.
  static constexpr Size kSize{61, 43};
  static constexpr Size kOther{37, 90};

  static std::unique_ptr<RasterDecoder> make(ColorMode mode = ColorMode::kRgb,
                                             ImageLimits limits = {}) {
    return GetParam().make(ImageMode::of(mode), limits);
  }
  static Bytes file(Size size = kSize, std::uint64_t seed = 1) {
    return GetParam().file(size, seed);
  }
  // The pixels of a region, or of the whole image.
  static Result<Picture> read(RasterDecoder& decoder, const Bytes& bytes,
                              std::optional<Rect> region = std::nullopt,
                              ColorMode mode = ColorMode::kRgb) {
    SPDLD_ASSIGN(const RasterInfo info, decoder.open(bytes));
    const Rect wanted = region.value_or(Rect{0, 0, info.size.width, info.size.height});
    PictureSink sink(wanted, ImageMode::of(mode).pixel_bytes());
    SPDLD_TRY(decoder.read(wanted, sink));
    Picture picture = sink.take();
    EXPECT_EQ(picture.height, wanted.height) << "a read that succeeds gives every row";
    return picture;
  }
  static Picture picture_of(RasterDecoder& decoder, const Bytes& bytes,
                            std::optional<Rect> region = std::nullopt,
                            ColorMode mode = ColorMode::kRgb) {
    Result<Picture> picture = read(decoder, bytes, region, mode);
    EXPECT_TRUE(picture.has_value()) << picture.error().message();
    return picture ? *std::move(picture) : Picture();
  }
  static bool is_of_the_data(Code code) {
    return code == Code::kDataLoss || code == Code::kInvalidArgument ||
           code == Code::kResourceExhausted;
  }
};

TEST_P(RasterDecoderSuite, TellsTheSizeOfTheStoredImage) {
  const auto decoder = make();
  for (const Size size : {kSize, kOther, Size{1, 1}}) {
    const Bytes bytes = file(size);
    if (bytes.empty() && size == Size{1, 1}) continue;
    const Result<RasterInfo> info = decoder->open(bytes);
    ASSERT_TRUE(info.has_value()) << info.error().message();
    EXPECT_EQ(info->size, size);
    EXPECT_TRUE(info->orientation.upright());
  }
}

// PictureSink sees that rows come once each and in order.
TEST_P(RasterDecoderSuite, GivesTheCropOfTheWholeImageForAnyRegion) {
  for (const ColorMode mode : {ColorMode::kRgb, ColorMode::kGray}) {
    const Bytes bytes = file();
    const auto decoder = make(mode);
    const Picture whole = picture_of(*decoder, bytes, std::nullopt, mode);
    ASSERT_EQ((Size{whole.width, whole.height}), kSize);
    ASSERT_GT(std::set<std::uint8_t>(whole.pixels.begin(), whole.pixels.end()).size(), 3U)
        << "an image without pixels to tell apart tests nothing";
    KeyedRng rng(7);
    for (int i = 0; i < 40; ++i) {
      const Rect region = drawn_region(kSize, rng);
      const Picture part = whole.cut(region);
      ASSERT_EQ(picture_of(*decoder, bytes, region, mode), part)
          << region.x << "," << region.y << " " << region.width << "x" << region.height;
      if (i % 4 == 0) {
        ASSERT_EQ(picture_of(*make(mode), bytes, region, mode), part) << "by a fresh decoder";
      }
    }
  }
}

TEST_P(RasterDecoderSuite, GivesTheSamePixelsEveryTime) {
  const Bytes bytes = file();
  const Bytes other = file(kOther, 2);
  const auto decoder = make();
  const Picture first = picture_of(*decoder, bytes);
  EXPECT_EQ(picture_of(*decoder, bytes), first);
  const Picture second = picture_of(*decoder, other);
  EXPECT_NE(second, first);
  EXPECT_EQ(picture_of(*decoder, bytes), first) << "after another image";
  EXPECT_EQ(picture_of(*decoder, file(kSize, 2)).height, kSize.height);
  EXPECT_EQ(picture_of(*decoder, bytes), first) << "after other pixels of the same size";
  EXPECT_EQ(picture_of(*make(), bytes), first) << "by a fresh decoder";
  EXPECT_EQ(picture_of(*make(), other), second) << "by a fresh decoder";
}

TEST_P(RasterDecoderSuite, ReadsTheImageThatWasOpenedLast) {
  const Bytes bytes = file();
  const Bytes unread = file(kOther, 2);
  const auto decoder = make();
  const Picture picture = picture_of(*decoder, bytes);
  ASSERT_TRUE(decoder->open(unread).has_value());
  EXPECT_EQ(picture_of(*decoder, bytes), picture);
}

TEST_P(RasterDecoderSuite, RefusesATruncatedFileWithDataLoss) {
  Bytes bytes = file();
  const auto decoder = make();
  const Picture picture = picture_of(*decoder, bytes);
  bytes.resize(bytes.size() - GetParam().padding_bytes);
  ASSERT_EQ(picture_of(*decoder, bytes), picture);
  KeyedRng rng(8);
  const auto expect_refused = [&](std::size_t size) {
    const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<Picture> got = read(*decoder, part);
    ASSERT_FALSE(got.has_value()) << "the first " << size << " of " << bytes.size() << " bytes";
    ASSERT_EQ(got.error().code(), Code::kDataLoss) << size << ": " << got.error().message();
    ASSERT_FALSE(got.error().message().empty());
  };
  for (std::size_t size = 0; size < std::min<std::size_t>(bytes.size(), 64); ++size)
    expect_refused(size);
  for (std::size_t left_out = 1; left_out <= std::min<std::size_t>(bytes.size(), 64); ++left_out)
    expect_refused(bytes.size() - left_out);
  for (int i = 0; i < 100; ++i) expect_refused(rng.below(bytes.size()));
  EXPECT_EQ(picture_of(*decoder, bytes), picture) << "it is ready for the next image";
}

TEST_P(RasterDecoderSuite, RefusesAnImageOverTheLimitAtItsHeader) {
  constexpr std::int64_t kPixels = std::int64_t{kSize.width} * kSize.height;
  const Bytes bytes = file();
  const auto at_limit = make(ColorMode::kRgb, {.max_pixels = kPixels});
  EXPECT_EQ(picture_of(*at_limit, bytes), picture_of(*make(), bytes));

  const auto below = make(ColorMode::kRgb, {.max_pixels = kPixels - 1});
  const Bytes small = file({9, 9});
  const Picture picture = picture_of(*below, small);
  const Result<RasterInfo> refused = below->open(bytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted) << refused.error().message();
  EXPECT_EQ(picture_of(*below, small), picture) << "it is ready for the next image";
}

TEST_P(RasterDecoderSuite, LetsNothingOfADamagedFileReachTheNextImage) {
  const ImageLimits limits{.max_pixels = 100'000};  // damaged headers may claim anything
  const Bytes bytes = file();
  const auto decoder = make(ColorMode::kRgb, limits);
  const Picture picture = picture_of(*decoder, bytes);
  int failures = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    KeyedRng rng(mix64(9, i));
    const Bytes damaged = mutant_of(bytes, rng);
    const Result<Picture> got = read(*decoder, damaged);
    const Result<Picture> fresh = read(*make(ColorMode::kRgb, limits), damaged);
    ASSERT_EQ(got.has_value(), fresh.has_value()) << "mutant " << i;
    if (got) {
      ASSERT_EQ(*got, *fresh) << "mutant " << i;
    } else {
      ++failures;
      ASSERT_TRUE(is_of_the_data(got.error().code())) << i << ": " << got.error().message();
      ASSERT_EQ(got.error().message(), fresh.error().message()) << "mutant " << i;
    }
    ASSERT_EQ(picture_of(*decoder, bytes), picture) << "after mutant " << i;
  }
  EXPECT_GT(failures, 10) << "so little damage tests nothing";
}

TEST_P(RasterDecoderSuite, StatesTheMemoryThatReadingTakesAtMost) {
  const Bytes bytes = file();
  const Bytes large = file({kSize.width * 4, kSize.height * 4});
  const auto decoder = make();
  ASSERT_TRUE(decoder->open(large).has_value());
  const std::uint64_t large_bytes = decoder->read_bytes();
  ASSERT_TRUE(decoder->open(bytes).has_value());
  EXPECT_GT(decoder->read_bytes(), 0U);
  EXPECT_LT(decoder->read_bytes(), large_bytes) << "it is the memory of the image that is open";
  EXPECT_LT(large_bytes, std::uint64_t{64} << 20);
}

TEST_P(RasterDecoderSuite, RecodesNothingWithoutSayingSo) {
  const Bytes bytes = file();
  const auto decoder = make();
  const Picture picture = picture_of(*decoder, bytes);
  ASSERT_TRUE(decoder->open(bytes).has_value());
  const bool none = decoder->recode_bytes() == 0;
  EXPECT_EQ(decoder->recode().empty(), none);
  EXPECT_EQ(picture_of(*decoder, bytes), picture) << "it is ready for the next image";
}

}  // namespace spdld::media::test

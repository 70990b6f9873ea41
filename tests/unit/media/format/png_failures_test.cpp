// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kHeaderEnd = 8 + 25;

TEST(PngTruncation, IsAFailureWhereverTheFileEnds) {
  const Bytes png = make_png({.interlaced = true});
  const auto decoder = make_decoder();
  for (std::size_t size = 1; size < png.size(); ++size) {
    const Bytes part(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<Size> opened = decoder->open(part);
    ASSERT_FALSE(opened.has_value()) << size << " of " << png.size() << " bytes";
    ASSERT_EQ(opened.error().code(), Code::kDataLoss);
    ASSERT_THAT(opened.error().message(), HasSubstr("truncated PNG: no end (IEND) in its " +
                                                    std::to_string(size) + " bytes"));
  }
}

TEST(PngTruncation, OfTheImageDataInAWholeFileIsAFailure) {
  for (const int rows : {1, 5, 12}) {
    const Status status = failure_of(make_png({.rows_left_out = rows}));
    EXPECT_EQ(status.code(), Code::kDataLoss) << rows;
    EXPECT_THAT(status.message(), HasSubstr("FFmpeg says: IEND without all image"));
  }
}

TEST(PngCorruption, OfAnyByteThatPixelsDependOnIsAFailure) {
  const Bytes png = make_png({});
  const auto decoder = make_decoder();
  for (std::size_t at = 8; at < png.size(); ++at) {
    Bytes damaged = png;
    damaged[at] ^= std::byte{0x10};
    const Result<Picture> picture = read_whole(*decoder, damaged);
    ASSERT_FALSE(picture.has_value()) << "byte " << at;
  }
}

TEST(PngCorruption, OfAChecksumIsNamed) {
  Bytes png = make_png({});
  png[kHeaderEnd + 12] ^= std::byte{1};  // inside IDAT
  const Status status = failure_of(png);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("corrupt PNG: FFmpeg says: CRC mismatch"));
}

TEST(PngCorruption, LeavesTheDecoderReadyForTheNextImage) {
  const Bytes good = make_png({});
  Bytes bad = make_png({.seed = 2});
  bad[kHeaderEnd + 12] ^= std::byte{1};
  const auto decoder = make_decoder();
  const Result<Picture> before = read_whole(*decoder, good);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(read_whole(*decoder, bad).has_value());
    const Result<Picture> after = read_whole(*decoder, good);
    ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
    EXPECT_EQ(*before, *after);
  }
}

TEST(PngStructure, ThatBreaksTheFormatIsAFailure) {
  const Bytes row = {std::byte{0}, std::byte{1}};
  const auto expect = [](const Bytes& png, std::string_view why) {
    const Status status = failure_of(png);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("corrupt PNG: " + std::string(why)));
  };
  expect(PngWriter().data(row).end(), "IHDR is not its first chunk");
  expect(PngWriter().header(1, 1, 8, 0).header(1, 1, 8, 0).data(row).end(), "IHDR is there twice");
  expect(PngWriter().header(1, 1, 8, 0).end(), "it has no image data");
  expect(PngWriter().header(1, 1, 8, 3).data(row).end(), "its palette is missing");
  expect(PngWriter().header(1, 1, 8, 3).chunk("PLTE", row).data(row).end(),
         "PLTE has a wrong length");
  expect(PngWriter().header(0, 1, 8, 0).data(row).end(), "impossible size 0x1");
  expect(PngWriter().header(1, 0x80000000, 8, 0).data(row).end(), "impossible size");
  expect(PngWriter().header(1, 1, 2, 2).data(row).end(), "no such format as colour type 2");
  expect(PngWriter().header(1, 1, 16, 3).data(row).end(), "no such format as colour type 3");
  expect(PngWriter().header(1, 1, 8, 5).data(row).end(), "no such format as colour type 5");
  expect(PngWriter().header(1, 1, 8, 0, 2).data(row).end(), "unknown compression");
  expect(PngWriter().chunk("IHDR", row).data(row).end(), "IHDR has a wrong length");
}

TEST(PngStructure, MayCarryBytesBehindItsEnd) {
  Bytes png = make_png({});
  const Result<Picture> before = read_whole(*make_decoder(), png);
  png.insert(png.end(), 50, std::byte{0x55});
  const Result<Picture> after = read_whole(*make_decoder(), png);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(*before, *after);
}

TEST(PngLimits, RefuseTooManyPixelsWithTheNumbersAndTheWayOut) {
  const Status status = failure_of(make_png({.width = 10, .height = 10}), {.max_pixels = 99});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "image of 10x10 = 100 pixels is over the limit of 99; raise decode_image.max_pixels to "
            "read it");
}

TEST(PngLimits, RefuseAHeaderThatClaimsMoreThanTheDataCanHold) {
  const Bytes row = {std::byte{0}, std::byte{1}};
  for (const std::uint32_t side : {12000U, 0x7FFFFFFFU}) {
    const Status status = failure_of(PngWriter().header(side, side, 16, 6).data(row).end());
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("bytes of data cannot hold the "));
  }
}

TEST(PngLimits, RefuseWhatFfmpegCannotTakeWhateverTheLimitSays) {
  // Zeros shrink a thousandfold: data that could well hold this header's pixels.
  const Bytes zeros(40'000'000, std::byte{0});
  const Bytes png = PngWriter().header(20000, 16000, 1, 0).data(zeros).end();
  const Status status = failure_of(png, {.max_pixels = 1'000'000'000});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("larger than FFmpeg reads"));
}

TEST(PngLimits, KeepCompressedTextFromTheDecoder) {
  // A text of 64 MB in 64 kB: were it inflated, so much memory would be taken for nothing.
  PngWriter bomb;
  bomb.data(Bytes(64'000'000, std::byte{'a'}));
  const Bytes idat(bomb.bytes().begin() + 16, bomb.bytes().end() - 4);
  Bytes text(3 + idat.size(), std::byte{0});  // a keyword, its end, the method
  text[0] = std::byte{'k'};
  std::copy(idat.begin(), idat.end(), text.begin() + 3);
  const Bytes row = {std::byte{0}, std::byte{7}};
  const Bytes png = PngWriter().header(1, 1, 8, 0).chunk("zTXt", text).data(row).end();
  const Result<Picture> picture = read_whole(*make_decoder(ColorMode::kGray), png, 1);
  ASSERT_TRUE(picture.has_value()) << picture.error().message();
  EXPECT_EQ(picture->pixels, std::vector<std::uint8_t>{7});
}

}  // namespace
}  // namespace spdld::media::test

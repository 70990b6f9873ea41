// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kEoiBytes = 2;

// Where the nth marker of this code stands (its FF), or the end.
std::size_t find_marker(const Bytes& jpeg, unsigned code, int nth = 0) {
  for (std::size_t i = 0; i + 1 < jpeg.size(); ++i) {
    if (jpeg[i] == std::byte{0xFF} && jpeg[i + 1] == static_cast<std::byte>(code) && nth-- == 0) {
      return i;
    }
  }
  ADD_FAILURE() << "no marker " << code;
  return jpeg.size();
}

Bytes first_bytes(const Bytes& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

void insert(Bytes& bytes, std::size_t at, const std::vector<unsigned>& values) {
  Bytes longer = first_bytes(bytes, at);
  for (const unsigned value : values) longer.push_back(static_cast<std::byte>(value));
  longer.insert(longer.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
  bytes = std::move(longer);
}

TEST(JpegTruncation, IsAFailureWhereverTheFileEnds) {
  for (const bool progressive : {false, true}) {
    const Bytes jpeg = make_jpeg({.progressive = progressive, .exif = make_tiff(6, true)});
    const auto decoder = make_decoder();
    for (std::size_t size = 1; size < jpeg.size(); ++size) {
      const Result<Size> opened = decoder->open(first_bytes(jpeg, size));
      ASSERT_FALSE(opened.has_value()) << size << " of " << jpeg.size() << " bytes";
      ASSERT_EQ(opened.error().code(), Code::kDataLoss) << opened.error().message();
    }
  }
}

TEST(JpegTruncation, NamesWhatIsMissingAndHowMuchThereIs) {
  const Bytes jpeg = make_jpeg({});
  const Status status = failure_of(first_bytes(jpeg, jpeg.size() - kEoiBytes));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("truncated JPEG: no end-of-image marker in its " +
                                          std::to_string(jpeg.size() - kEoiBytes) + " bytes"));
}

TEST(JpegTruncation, IsSeenEvenByWhoReadsTheTopRowOnly) {
  const Bytes jpeg = make_jpeg({.height = 480});
  const Result<Picture> top =
      read_region(*make_decoder(), first_bytes(jpeg, jpeg.size() - 1), {0, 0, 64, 1});
  ASSERT_FALSE(top.has_value());
  EXPECT_EQ(top.error().code(), Code::kDataLoss);
}

TEST(JpegTruncation, IsNotHiddenByTheEndOfAnEmbeddedThumbnail) {
  const Bytes thumbnail = make_jpeg({.width = 16, .height = 16});
  const Bytes jpeg = make_jpeg({.exif = thumbnail});
  ASSERT_TRUE(read_whole(*make_decoder(), jpeg).has_value());
  EXPECT_EQ(failure_of(first_bytes(jpeg, jpeg.size() - kEoiBytes)).code(), Code::kDataLoss);
}

TEST(JpegTruncation, OfTheDataInsideAWholeFileIsAFailure) {
  // Rows are missing, then the file goes on as if nothing were.
  Bytes jpeg = make_jpeg({.height = 480});
  const auto scan = static_cast<std::ptrdiff_t>(find_marker(jpeg, 0xDA));
  jpeg.erase(jpeg.begin() + scan + 400, jpeg.end() - kEoiBytes);
  const Status status = failure_of(jpeg);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("libjpeg says: "));
}

TEST(JpegStructure, WithoutAFrameIsAFailure) {
  Bytes jpeg;
  insert(jpeg, 0, {0xFF, 0xD8, 0xFF, 0xD9});
  EXPECT_THAT(failure_of(jpeg).message(), HasSubstr("no frame header"));
}

TEST(JpegStructure, WithoutAScanIsAFailure) {
  Bytes jpeg = make_jpeg({});
  jpeg.erase(jpeg.begin() + static_cast<std::ptrdiff_t>(find_marker(jpeg, 0xDA)),
             jpeg.end() - kEoiBytes);
  EXPECT_THAT(failure_of(jpeg).message(), HasSubstr("no scan"));
}

TEST(JpegStructure, OfAnImpossibleSegmentLengthIsAFailure) {
  for (const unsigned length : {0U, 1U, 0xFFFFU}) {
    Bytes jpeg = make_jpeg({});
    insert(jpeg, 2, {0xFF, 0xE2, length >> 8, length & 0xFF});
    EXPECT_EQ(failure_of(jpeg).code(), Code::kDataLoss) << length;
  }
}

TEST(JpegStructure, MayCarryBytesBehindItsEnd) {
  Bytes jpeg = make_jpeg({});
  const Result<Picture> before = read_whole(*make_decoder(), jpeg);
  jpeg.insert(jpeg.end(), 100, std::byte{0x55});
  const Result<Picture> after = read_whole(*make_decoder(), jpeg);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(*before, *after);
}

TEST(JpegStructure, MayCarryPaddingBeforeAMarker) {
  for (const bool progressive : {false, true}) {
    Bytes jpeg = make_jpeg({.progressive = progressive});
    const Result<Picture> before = read_whole(*make_decoder(), jpeg);
    insert(jpeg, jpeg.size() - kEoiBytes, {0, 0, 0, 0, 0xFF, 0xFF, 0xFF});
    insert(jpeg, find_marker(jpeg, 0xC4), {7, 7, 7});
    const Result<Picture> after = read_whole(*make_decoder(), jpeg);
    ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
    EXPECT_EQ(*before, *after);
  }
}

TEST(JpegCorruption, OfRestartMarkersOutOfStepIsAFailure) {
  Bytes jpeg = make_jpeg({.restart_interval = 2});
  jpeg[find_marker(jpeg, 0xD1) + 1] = std::byte{0xD5};
  EXPECT_EQ(failure_of(jpeg).code(), Code::kDataLoss);
}

TEST(JpegCorruption, BytesLeftOverBeforeARestartMarkerAreAFailure) {
  Bytes jpeg = make_jpeg({.restart_interval = 2});
  insert(jpeg, find_marker(jpeg, 0xD1), {0x12, 0x34, 0x56});
  const Status status = failure_of(jpeg);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("extraneous bytes"));
}

TEST(JpegStructure, MayHoldARestartMarkerInBytesBeforeItsFirstScan) {
  Bytes jpeg = make_jpeg({});
  const Result<Picture> whole = read_whole(*make_decoder(), jpeg);
  for (const int marker : {0xD0, 0xD7}) {
    Bytes padded = jpeg;
    const Bytes extra{std::byte{1}, std::byte{2}, std::byte{0xFF}, static_cast<std::byte>(marker),
                      std::byte{3}};
    padded.insert(padded.begin() + static_cast<std::ptrdiff_t>(find_marker(padded, 0xDB)),
                  extra.begin(), extra.end());
    const Result<Picture> read = read_whole(*make_decoder(), padded);
    ASSERT_TRUE(whole.has_value() && read.has_value()) << read.error().message();
    EXPECT_EQ(*whole, *read);
  }
}

TEST(JpegCorruption, BelowTheRegionLeavesTheRegionAlone) {
  Bytes jpeg = make_jpeg({.height = 480, .restart_interval = 8});
  const Result<Picture> whole = read_whole(*make_decoder(), jpeg);
  jpeg[find_marker(jpeg, 0xD3, 4) + 1] = std::byte{0xD0};
  EXPECT_EQ(failure_of(jpeg).code(), Code::kDataLoss);
  const Rect top{3, 5, 40, 20};
  const Result<Picture> part = read_region(*make_decoder(), jpeg, top);
  ASSERT_TRUE(whole.has_value() && part.has_value());
  EXPECT_EQ(*part, whole->cut(top));
}

TEST(JpegCorruption, LeavesTheDecoderReadyForTheNextImage) {
  const Bytes good = make_jpeg({.luma_h = 2, .luma_v = 2});
  Bytes bad = make_jpeg({.restart_interval = 2});
  bad[find_marker(bad, 0xD1) + 1] = std::byte{0xD5};
  const auto decoder = make_decoder();
  const Result<Picture> before = read_whole(*decoder, good);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(read_whole(*decoder, bad).has_value());
    const Result<Picture> after = read_whole(*decoder, good);
    ASSERT_TRUE(before.has_value() && after.has_value());
    EXPECT_EQ(*before, *after);
  }
}

TEST(JpegCorruption, OfMissingTablesIsNotMendedWithThoseOfTheImageBefore) {
  const Bytes good = make_jpeg({});
  Bytes bad = good;
  const std::size_t tables = find_marker(bad, 0xDB);
  bad[tables + 1] = std::byte{0xEE};  // quantisation becomes an unknown application's segment
  const auto decoder = make_decoder();
  ASSERT_TRUE(read_whole(*decoder, good).has_value());
  const Result<Picture> picture = read_whole(*decoder, bad);
  ASSERT_FALSE(picture.has_value());
  EXPECT_EQ(picture.error().code(), Code::kDataLoss);
}

TEST(JpegSupport, OfTwelveBitsIsRefusedAsUnsupported) {
  Bytes jpeg = make_jpeg({});
  jpeg[find_marker(jpeg, 0xC0) + 4] = std::byte{12};
  const Status status = failure_of(jpeg);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("unsupported JPEG"));
}

TEST(JpegSupport, OfLosslessCodingIsRefusedAsUnsupported) {
  Bytes jpeg = make_jpeg({});
  jpeg[find_marker(jpeg, 0xC0) + 1] = std::byte{0xC3};
  EXPECT_EQ(failure_of(jpeg).code(), Code::kInvalidArgument);
}

TEST(JpegLimits, RefuseTooManyPixelsWithTheNumbersAndTheWayOut) {
  const Status status = failure_of(make_jpeg({.width = 64, .height = 48}), {.max_pixels = 3071});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "image of 64x48 = 3072 pixels is over the limit of 3071; raise decode_image.max_pixels "
            "to read it");
}

TEST(JpegLimits, TakeAnImageOfExactlyTheLimit) {
  EXPECT_TRUE(read_whole(*make_decoder(ColorMode::kRgb, true, {.max_pixels = 64 * 48}),
                         make_jpeg({.width = 64, .height = 48}))
                  .has_value());
}

TEST(JpegLimits, RefuseTooManyScans) {
  const Bytes jpeg = make_jpeg({.progressive = true, .repeated_scans = 150});
  const Status status = failure_of(jpeg);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "JPEG of 150 scans is over the limit of 100; raise decode_image.max_scans to read it");
  EXPECT_TRUE(
      read_whole(*make_decoder(ColorMode::kRgb, true, {.max_scans = 150}), jpeg).has_value());
}

TEST(JpegLimits, RefuseAHeaderThatClaimsMoreThanTheDataCanHold) {
  for (const bool progressive : {false, true}) {
    Bytes jpeg = make_jpeg({.progressive = progressive});
    const std::size_t frame = find_marker(jpeg, progressive ? 0xC2 : 0xC0);
    jpeg[frame + 5] = jpeg[frame + 7] = std::byte{0x30};  // 12 thousand and odd by as many
    const Status status = failure_of(jpeg);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("bytes cannot hold the 12352x12336 pixels"));
  }
}

TEST(JpegLimits, RefuseASideThatLibjpegCannotTake) {
  Bytes jpeg = make_jpeg({});
  const std::size_t frame = find_marker(jpeg, 0xC0);
  jpeg[frame + 5] = jpeg[frame + 6] = std::byte{0xFF};
  EXPECT_EQ(failure_of(jpeg).code(), Code::kResourceExhausted);
}

TEST(JpegLimits, RefuseAnImageWithoutRows) {
  Bytes jpeg = make_jpeg({});
  const std::size_t frame = find_marker(jpeg, 0xC0);
  jpeg[frame + 5] = jpeg[frame + 6] = std::byte{0};
  EXPECT_EQ(failure_of(jpeg).code(), Code::kDataLoss);
}

}  // namespace
}  // namespace spdld::media::test

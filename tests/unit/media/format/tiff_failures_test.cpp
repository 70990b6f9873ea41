// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/unit/media/format/tiff_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

using Tags = std::map<unsigned, std::vector<std::uint32_t>>;

Status failure_with(const Tags& tags, TiffRecipe recipe = {}, ImageLimits limits = {}) {
  recipe.tags = tags;
  return failure_of(make_tiff_file(recipe), limits);
}

TEST(TiffTruncation, IsAFailureWhereverTheFileEnds) {
  const auto decoder = make_decoder();
  for (const Bytes& tiff :
       {make_tiff_file({.rows_per_strip = 8}), make_tiff_file({.compression = 5, .tile = {16, 16}}),
        make_tiff_file({.photometric = 3, .samples = 1, .bits = 4, .big_tiff = true})}) {
    // The last four or eight bytes of a directory say where the next one is.
    for (std::size_t size = 1; size + 8 < tiff.size(); size += size < 40 ? 1 : 31) {
      const Bytes part(tiff.begin(), tiff.begin() + static_cast<std::ptrdiff_t>(size));
      const Result<Size> opened = decoder->open(part);
      ASSERT_FALSE(opened.has_value()) << size << " of " << tiff.size() << " bytes";
      ASSERT_EQ(opened.error().code(), Code::kDataLoss);
      ASSERT_THAT(opened.error().message(), HasSubstr("truncated TIFF: no "));
    }
  }
}

TEST(TiffTruncation, OfPixelsBehindTheDirectoryIsAFailure) {
  for (const unsigned tag : {273U, 279U}) {
    const Status status = failure_with({{tag, {0x7FFFFFFF}}}, {.compression = 8});
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("truncated TIFF: no last pixels"));
  }
}

TEST(TiffTruncation, OfCompressedDataIsAFailure) {
  for (const unsigned compression : {5U, 8U, 32773U}) {
    const TiffRecipe recipe{.compression = compression};
    const Status status = failure_with({{279, {200}}}, recipe);
    EXPECT_EQ(status.code(), Code::kDataLoss) << compression;
    EXPECT_THAT(status.message(), HasSubstr("corrupt TIFF: ")) << compression;
  }
}

TEST(TiffTruncation, OfFaxCodesIsAFailure) {
  for (const bool t6 : {false, true}) {
    for (const int rows : {1, 5, 9}) {
      const Status status = failure_of(make_tiff_file({.width = 16,
                                                       .height = 10,
                                                       .photometric = 0,
                                                       .samples = 1,
                                                       .bits = 1,
                                                       .compression = t6 ? 4U : 3U,
                                                       .strip = fax_codes(rows, t6)}));
      EXPECT_EQ(status.code(), Code::kDataLoss) << rows << " rows, T.6 " << t6;
      EXPECT_THAT(status.message(), HasSubstr("corrupt TIFF: "));
    }
  }
}

TEST(TiffStructure, ThatBreaksTheFormatIsAFailure) {
  const auto expect = [](const Status& status, std::string_view why) {
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("corrupt TIFF: " + std::string(why)));
  };
  expect(failure_with({{256, {0}}}), "impossible size 0x29");
  expect(failure_with({{257, {}}}), "impossible size 37x0");
  expect(failure_with({{257, {0x80000000}}}), "impossible size 37x2147483648");
  expect(failure_with({{277, {2}}}), "2 samples a pixel");
  expect(failure_with({{277, {100}}}), "100 samples a pixel");
  expect(failure_with({{284, {3}}}), "planar configuration 3");
  expect(failure_with({{320, {}}}, {.photometric = 3, .samples = 1}), "its palette is missing");
  expect(failure_with({{322, {0}}}, {.tile = {16, 16}}), "impossible size of a tile, 0x16");
  expect(failure_with({{322, {0x7FFFFFFF}}, {323, {0x7FFFFFFF}}}, {.tile = {16, 16}}),
         "impossible size of a tile");
  expect(failure_with({{259, {4}}}), "a fax compression of 8 bits");
  expect(failure_with({{279, {}}}, {.compression = 5}),
         "nothing says how long its compressed data is");
}

TEST(TiffStructure, OfAKindThatIsNotReadIsNamed) {
  const auto expect = [](const Status& status, std::string_view what) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("unsupported TIFF: " + std::string(what)));
  };
  expect(failure_with({{259, {7}}}),
         "compression 7 (JPEG); write it anew, for example by 'tiffcp -c lzw'");
  expect(failure_with({{259, {50000}}}), "compression 50000 (Zstandard)");
  expect(failure_with({{262, {6}}}), "YCbCr; convert it to RGB or gray");
  expect(failure_with({{262, {32803}}}), "raw sensor data");
  expect(failure_with({{258, {32, 32, 32}}}), "3 samples a pixel of 32 bits");
  expect(failure_with({{258, {5, 6, 5}}}), "samples of different numbers of bits");
  expect(failure_with({{339, {3, 3, 3}}}), "samples of floating point; write them as .npy");
  expect(failure_with({{339, {2, 2, 2}}}), "samples that are no unsigned integers");
  expect(failure_with({{317, {3}}}, {.compression = 8}), "predictor 3 of 8 bits");
  expect(failure_with({{317, {2}}}, {.photometric = 1, .samples = 1, .bits = 1, .compression = 8}),
         "predictor 2 of 1 bits");
  expect(failure_with({{277, {2}}, {258, {8, 8}}}, {.photometric = 3, .samples = 1}),
         "2 samples a pixel of 8 bits");
}

TEST(TiffStructure, OfBandsIsNamedAndNotReadAsItsFirstBand) {
  for (const unsigned photometric : {0U, 1U}) {
    for (const unsigned samples : {2U, 3U, 4U, 5U, 13U}) {
      for (const unsigned bits : {8U, 16U}) {
        for (const bool planar : {false, true}) {
          TiffRecipe recipe{
              .photometric = photometric, .samples = samples, .bits = bits, .planar = planar};
          // Nothing is said of the others; it is said that they are none; the first one is alpha.
          for (const std::vector<std::uint32_t>& extra :
               {std::vector<std::uint32_t>(), std::vector<std::uint32_t>(samples - 1, 0),
                std::vector<std::uint32_t>{2}}) {
            if (samples == 2 && extra == std::vector<std::uint32_t>{2}) continue;
            const Status status = failure_with({{338, extra}}, recipe);
            EXPECT_EQ(status.code(), Code::kInvalidArgument);
            EXPECT_THAT(status.message(),
                        HasSubstr("unsupported TIFF: " + std::to_string(samples) + " bands"));
          }
        }
      }
    }
  }
}

TEST(TiffStructure, OfAListThatIsTooShortIsTruncated) {
  const Status status = failure_with({{273, {8, 8}}}, {.rows_per_strip = 8});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("truncated TIFF: no list of all strips"));
}

TEST(TiffCorruption, LeavesTheDecoderReadyForTheNextImage) {
  for (const unsigned compression : {5U, 8U, 32773U}) {
    const Bytes good = make_tiff_file({.compression = compression});
    Bytes bad = good;
    std::fill(bad.begin() + 8, bad.begin() + 300, std::byte{0x7F});
    const auto decoder = make_decoder();
    const Result<Picture> before = read_whole(*decoder, good);
    for (int i = 0; i < 3; ++i) {
      const Result<Picture> broken = read_whole(*decoder, bad);
      if (compression != 32773) {
        ASSERT_FALSE(broken.has_value()) << compression;
        EXPECT_EQ(broken.error().code(), Code::kDataLoss);
      }
      const Result<Picture> after = read_whole(*decoder, good);
      ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
      EXPECT_EQ(*before, *after);
    }
  }
}

TEST(TiffLimits, RefuseTooManyPixelsWithTheNumbersAndTheWayOut) {
  const Status status = failure_of(make_tiff_file({.width = 10, .height = 10}), {.max_pixels = 99});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "image of 10x10 = 100 pixels is over the limit of 99; raise decode_image.max_pixels to "
            "read it");
}

TEST(TiffLimits, RefuseAHeaderThatClaimsMoreThanTheDataCanHold) {
  for (const unsigned compression : {1U, 5U, 8U, 32773U}) {
    const Status status =
        failure_with({{256, {10000}}, {257, {10000}}}, {.compression = compression});
    EXPECT_EQ(status.code(), Code::kDataLoss) << compression;
  }
  EXPECT_THAT(failure_with({{256, {10000}}, {257, {10000}}}, {.compression = 8}).message(),
              HasSubstr("bytes of data cannot hold the 10000x10000 pixels that its header claims"));
}

TEST(TiffLimits, RefuseAStripThatFfmpegCannotTakeWhateverTheLimitSays) {
  const TiffRecipe recipe{.width = 300, .height = 300, .compression = 5};
  const Status status =
      failure_with({{256, {20000}}, {257, {16000}}}, recipe, {.max_pixels = 1'000'000'000});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "TIFF of 60000x16000 pixels is larger than FFmpeg reads, whatever "
            "decode_image.max_pixels says");
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
// Our own decoder of baseline JPEG gives libjpeg-turbo's pixels, from a file's begin and by its
// index, and leaves to that whatever is odd.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "media/jpeg/baseline_decoder.h"
#include "media/jpeg_scan/seek_indexes.h"
#include "tests/support/forced_target.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/coded_jpeg_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using spdld::testing::ForcedTarget;
using Kind = JpegRecipe::Kind;

constexpr std::array<std::pair<int, int>, 3> kIndexedSamplings = {{{1, 1}, {2, 1}, {2, 2}}};

// A call with each of the two loops over an index's scan: that of this machine's vectors, and that
// of machines whose vectors have no scatters.
template <typename Call>
void with_each_loop(const Call& call) {
  call();
  const ForcedTarget baseline(HWY_STATIC_TARGET);
  call();
}

class JpegIndexTest : public ::testing::Test {
 protected:
  std::unique_ptr<ImageDecoder> decoder(ColorMode mode = ColorMode::kRgb, bool exif = true,
                                        std::uint32_t verify_one_in = 0) const {
    return DecodeImage(ImageMode::of(mode), exif, {},
                       {.indexes = indexes_, .verify_one_in = verify_one_in})
        .make_decoder();
  }
  static std::unique_ptr<ImageDecoder> libjpeg(ColorMode mode = ColorMode::kRgb) {
    return DecodeImage(ImageMode::of(mode), true, {}).make_decoder();
  }
  JpegImages images() const { return indexes_->snapshot().images; }
  // Reads the region twice, the second time by the index, then from the kept coefficients, and
  // compares.
  void expect_equal(const Bytes& jpeg, const Rect& region, ColorMode mode,
                    const std::string& what) {
    const int channels = ImageMode::of(mode).channels;
    const Result<Picture> expected = read_region(*libjpeg(mode), jpeg, region, channels);
    ASSERT_TRUE(expected) << what << ": " << expected.error().message();
    const auto own = decoder(mode);
    for (const char* const way : {"from its begin", "by its index"}) {
      const Result<Picture> found = read_region(*own, jpeg, region, channels);
      ASSERT_TRUE(found) << what << ", " << way << ": " << found.error().message();
      EXPECT_TRUE(*found == *expected) << what << ", " << way;
    }
    const std::vector<std::byte> kept = recoded(*own, jpeg);
    ASSERT_EQ(kept.empty(), !read_baseline_frame(jpeg)) << what;
    if (kept.empty()) return;
    const auto other = decoder(mode);
    const Result<Size> size = other->open_recoded(kept);
    ASSERT_TRUE(size) << what << ": " << size.error().message();
    PictureSink sink(region, channels);
    ASSERT_TRUE(other->read(region, sink).ok()) << what;
    EXPECT_TRUE(sink.take() == *expected) << what << ", from its coefficients";
  }
  static std::vector<std::byte> recoded(ImageDecoder& decoder, const Bytes& jpeg) {
    if (!decoder.open(jpeg)) return {};
    const std::span<const std::byte> bytes = decoder.recode();
    return {bytes.begin(), bytes.end()};
  }

  const std::shared_ptr<SeekIndexes> indexes_ =
      std::make_shared<SeekIndexes>(std::uint64_t{256} << 20);
};

TEST_F(JpegIndexTest, EverySizeAndSamplingHasLibjpegsPixels) {
  KeyedRng rng(7);
  for (const auto& [h, v] : kIndexedSamplings) {
    for (int width = 1; width <= 70; ++width) {
      const JpegRecipe recipe{.width = width,
                              .height = 1 + static_cast<int>(rng.below(70)),
                              .luma_h = h,
                              .luma_v = v,
                              .quality = 1 + static_cast<int>(rng.below(100)),
                              .seed = rng.below(1000)};
      const Bytes jpeg = make_jpeg(recipe);
      const Size size{recipe.width, recipe.height};
      const std::string what = std::to_string(h) + "x" + std::to_string(v) + " of " +
                               std::to_string(width) + "x" + std::to_string(recipe.height);
      expect_equal(jpeg, {0, 0, size.width, size.height}, ColorMode::kRgb, what);
      expect_equal(jpeg, drawn_region(size, rng), ColorMode::kRgb, what);
      expect_equal(jpeg, drawn_region(size, rng), ColorMode::kGray, what + ", gray");
    }
  }
}

TEST_F(JpegIndexTest, EveryQualityHasLibjpegsPixels) {
  KeyedRng rng(8);
  for (int quality = 1; quality <= 100; ++quality) {
    const auto& [h, v] =
        kIndexedSamplings[static_cast<std::size_t>(quality) % kIndexedSamplings.size()];
    const Size size{213, 155};
    const Bytes jpeg = make_jpeg({.width = size.width,
                                  .height = size.height,
                                  .luma_h = h,
                                  .luma_v = v,
                                  .quality = quality,
                                  .seed = static_cast<std::uint64_t>(quality)});
    expect_equal(jpeg, drawn_region(size, rng), ColorMode::kRgb,
                 "quality " + std::to_string(quality));
  }
}

TEST_F(JpegIndexTest, GrayFilesHaveLibjpegsPixelsInEveryMode) {
  KeyedRng rng(9);
  const Size size{131, 77};
  const Bytes jpeg = make_jpeg({.width = size.width, .height = size.height, .kind = Kind::kGray});
  for (const ColorMode mode : {ColorMode::kRgb, ColorMode::kGray, ColorMode::kIndex}) {
    for (int i = 0; i < 20; ++i) expect_equal(jpeg, drawn_region(size, rng), mode, "gray");
  }
}

TEST_F(JpegIndexTest, CodesAndCoefficientsThatNoPictureHasGiveLibjpegsPixels) {
  KeyedRng rng(12);
  for (int i = 0; i < 300; ++i) {
    const Bytes jpeg = drawn_jpeg(rng);
    const auto frame = read_baseline_frame(jpeg);
    ASSERT_TRUE(frame) << "file " << i;
    const std::string what = "file " + std::to_string(i);
    with_each_loop([&] {
      expect_equal(jpeg, {0, 0, frame->size.width, frame->size.height}, ColorMode::kRgb, what);
      expect_equal(jpeg, drawn_region(frame->size, rng), ColorMode::kRgb, what);
    });
  }
  EXPECT_EQ(images().by_libjpeg, 0u);
}

// How many regions of each file are read in each way: SPDLD_REGIONS of all, or a few.
int regions_wanted(std::size_t ways) {
  const char* const wanted = std::getenv("SPDLD_REGIONS");
  return wanted == nullptr ? 20 : std::atoi(wanted) / static_cast<int>(ways) + 1;
}

TEST_F(JpegIndexTest, EachGranularityGivesEveryRegion) {
  constexpr std::array kSteps = {1, 3, 8, 16, 1000};
  const int regions = regions_wanted(kIndexedSamplings.size() * (kSteps.size() + 1));
  KeyedRng rng(10);
  for (const auto& [h, v] : kIndexedSamplings) {
    const Size size{413, 301};
    const Bytes jpeg =
        make_jpeg({.width = size.width, .height = size.height, .luma_h = h, .luma_v = v});
    const Picture full = *read_whole(*libjpeg(), jpeg);
    const auto frame = read_baseline_frame(jpeg);
    ASSERT_TRUE(frame);
    BaselineDecoder own;
    for (const int step : kSteps) {
      const SeekGrid grid{frame->mcus_across(), frame->mcus_down(),
                          std::min(step, frame->mcus_across())};
      own.open(*frame, jpeg, BaselineDecoder::Output::kRgb);
      const Rect first{5, 3, 20, 20};
      PictureSink sink(first, 3);
      std::span<const std::uint64_t> entries;
      ASSERT_EQ(own.read_first(&grid, first, sink, entries), first.height);
      EXPECT_TRUE(sink.take() == full.cut(first));
      const std::vector<std::uint64_t> kept(entries.begin(), entries.end());
      ASSERT_EQ(kept.size(), grid.entries());
      for (int i = 0; i < regions; ++i) {
        const Rect region = drawn_region(size, rng);
        with_each_loop([&] {
          PictureSink rows(region, 3);
          own.open(*frame, jpeg, BaselineDecoder::Output::kRgb);
          ASSERT_EQ(own.read(SeekIndex(grid, kept), region, rows), region.height);
          ASSERT_TRUE(rows.take() == full.cut(region)) << "step " << step;
        });
        if (HasFatalFailure()) return;
      }
    }
    const auto reader = decoder();
    const std::vector<std::byte> kept = recoded(*reader, jpeg);
    for (int i = 0; i < regions; ++i) {
      const Rect region = drawn_region(size, rng);
      PictureSink rows(region, 3);
      ASSERT_TRUE(reader->open_recoded(kept));
      ASSERT_TRUE(reader->read(region, rows).ok());
      ASSERT_TRUE(rows.take() == full.cut(region)) << "from coefficients";
    }
  }
}

TEST_F(JpegIndexTest, AnIndexOfAnotherFileIsFoundOutOrGivesOnlyRowsThatAreBounded) {
  KeyedRng rng(11);
  const JpegRecipe recipe{.width = 213, .height = 155, .luma_h = 2, .luma_v = 2};
  const Bytes jpeg = make_jpeg(recipe);
  const auto frame = read_baseline_frame(jpeg);
  const SeekGrid grid{frame->mcus_across(), frame->mcus_down(), 8};
  BaselineDecoder own;
  int found_out = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::uint64_t> entries(grid.entries());
    for (std::uint64_t& entry : entries) {
      entry = rng.below(std::uint64_t{1} << 62);
      if (i % 2 == 0) entry %= std::uint64_t{jpeg.size()} << 39;  // inside the file
    }
    const Rect region = drawn_region({recipe.width, recipe.height}, rng);
    with_each_loop([&] {
      PictureSink rows(region, 3);
      own.open(*frame, jpeg, BaselineDecoder::Output::kRgb);
      found_out += own.read(SeekIndex(grid, entries), region, rows) < region.height ? 1 : 0;
    });
  }
  EXPECT_GT(found_out, 2 * 1500);
}

TEST_F(JpegIndexTest, AFileIsReadFromItsBeginOnceAndThenByItsIndex) {
  const Bytes jpeg = make_jpeg({.width = 213, .height = 155, .luma_h = 2, .luma_v = 2});
  const auto one = decoder();
  const auto other = decoder(ColorMode::kGray);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(read_region(*one, jpeg, {10, 10, 50, 50}));
    EXPECT_TRUE(read_region(*other, jpeg, {10, 10, 50, 50}, 1));
  }
  EXPECT_EQ(images().from_begin, 1U);
  EXPECT_EQ(images().indexed, 5U);
  EXPECT_EQ(images().by_libjpeg, 0U);
}

TEST_F(JpegIndexTest, AnotherFileOfTheSameLengthIsAnother) {
  const auto own = decoder();
  const Bytes jpeg = make_jpeg({.width = 64, .height = 64, .quality = 100});
  Bytes other = jpeg;
  ASSERT_TRUE(read_whole(*own, jpeg));
  ASSERT_TRUE(read_whole(*own, jpeg));
  // A bit of a quantizer, behind the marker, the length and the table's number.
  const std::array dqt = {std::byte{0xFF}, std::byte{0xDB}};
  const auto at = std::search(other.begin(), other.end(), dqt.begin(), dqt.end());
  ASSERT_NE(at, other.end());
  at[5] ^= std::byte{2};
  EXPECT_TRUE(*read_whole(*own, other) == *read_whole(*libjpeg(), other));
  EXPECT_TRUE(*read_whole(*own, jpeg) == *read_whole(*libjpeg(), jpeg));
  EXPECT_FALSE(*read_whole(*own, other) == *read_whole(*own, jpeg));
}

TEST_F(JpegIndexTest, TurnsWhatItReadsByTheIndexUpright) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Bytes jpeg = make_jpeg(
        {.width = 90, .height = 70, .exif = make_tiff(orientation, orientation % 2 == 0)});
    const auto own = decoder();
    const Picture expected = *read_whole(*libjpeg(), jpeg);
    EXPECT_TRUE(*read_whole(*own, jpeg) == expected);
    EXPECT_TRUE(*read_whole(*own, jpeg) == expected) << orientation;
    const std::vector<std::byte> kept = recoded(*own, jpeg);
    const Size size = *own->open_recoded(kept);
    PictureSink sink({0, 0, size.width, size.height}, 3);
    ASSERT_TRUE(own->read({0, 0, size.width, size.height}, sink).ok());
    EXPECT_TRUE(sink.take() == expected) << orientation << ", from its coefficients";
  }
  EXPECT_EQ(images().indexed, 8U);
  EXPECT_EQ(images().recoded, 8U);
  EXPECT_EQ(images().by_coefficients, 8U);
}

// Of 30 MB of FF 00 the places of the zeros would take twice as much as the file.
TEST_F(JpegIndexTest, ScansOfStuffedBytesAloneAreLeftToLibjpeg) {
  Bytes jpeg = make_jpeg({.width = 64, .height = 64, .kind = Kind::kGray});
  jpeg.resize(jpeg.size() - 2);
  for (int i = 0; i < 200'000; ++i) {
    jpeg.push_back(std::byte{0xFF});
    jpeg.push_back(std::byte{0x00});
  }
  jpeg.push_back(std::byte{0xFF});
  jpeg.push_back(std::byte{0xD9});
  const auto own = decoder();
  const Result<Picture> expected = read_whole(*libjpeg(), jpeg);
  const Result<Picture> found = read_whole(*own, jpeg);
  ASSERT_EQ(found.has_value(), expected.has_value());
  EXPECT_EQ(images().by_libjpeg, 1U);
  EXPECT_EQ(indexes_->snapshot().files, 0U);
}

TEST_F(JpegIndexTest, VerifyCountsTheMemoryOfWhatItCompares) {
  const Bytes jpeg = make_jpeg({.width = 640, .height = 480, .luma_h = 2, .luma_v = 2});
  const auto plain = decoder();
  const auto verifies = decoder(ColorMode::kRgb, true, 1);
  ASSERT_TRUE(plain->open(jpeg));
  ASSERT_TRUE(verifies->open(jpeg));
  EXPECT_EQ(verifies->read_bytes() - plain->read_bytes(), 640U * 480 * 3);
}

TEST_F(JpegIndexTest, LeavesOddFilesToLibjpeg) {
  const std::vector<JpegRecipe> odd = {{.progressive = true},      {.arithmetic = true},
                                       {.kind = Kind::kCmyk},      {.kind = Kind::kRgb},
                                       {.luma_h = 1, .luma_v = 2}, {.luma_h = 4},
                                       {.interleaved = false},     {.restart_interval = 2}};
  const auto own = decoder();
  for (const JpegRecipe& recipe : odd) {
    const Bytes jpeg = make_jpeg(recipe);
    const Picture expected = *read_whole(*libjpeg(), jpeg);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(*read_whole(*own, jpeg) == expected);
  }
  EXPECT_EQ(images().by_libjpeg, 2 * odd.size());
  EXPECT_EQ(images().from_begin + images().indexed, 0U);
}

TEST_F(JpegIndexTest, DamageBelowTheRegionLeavesTheRegionAloneAndTheFileWithoutAnIndex) {
  Bytes jpeg = make_jpeg({.width = 200, .height = 200, .luma_h = 2, .luma_v = 2, .quality = 95});
  for (std::size_t i = jpeg.size() * 3 / 4; i < jpeg.size() - 2; ++i) jpeg[i] = std::byte{0x55};
  const Rect top{0, 0, 200, 40};
  const auto own = decoder();
  const Picture expected = *read_region(*libjpeg(), jpeg, top);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(*read_region(*own, jpeg, top) == expected);
  EXPECT_EQ(images().indexed, 0U);
  EXPECT_EQ(indexes_->snapshot().files, 0U);
}

TEST_F(JpegIndexTest, DamageInTheRegionIsToldInLibjpegsWords) {
  Bytes jpeg = make_jpeg({.width = 200, .height = 200, .luma_h = 2, .luma_v = 2, .quality = 95});
  const auto middle = jpeg.begin() + static_cast<std::ptrdiff_t>(jpeg.size() / 2);
  jpeg.erase(middle, middle + static_cast<std::ptrdiff_t>(jpeg.size() / 3));
  const auto own = decoder();
  const Result<Picture> expected = read_whole(*libjpeg(), jpeg);
  ASSERT_FALSE(expected);
  for (int i = 0; i < 2; ++i) {
    const Result<Picture> found = read_whole(*own, jpeg);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().message(), expected.error().message());
    EXPECT_EQ(found.error().code(), expected.error().code());
  }
}

// How far libjpeg-turbo reads beyond a region's last row depends on where that lies in its chroma.
TEST_F(JpegIndexTest, DamageIsMetFromTheSameLastRowOnAsByLibjpeg) {
  int refused = 0;
  for (const auto& [h, v] : kIndexedSamplings) {
    const Bytes sound =
        make_jpeg({.width = 40, .height = 50, .luma_h = h, .luma_v = v, .quality = 95});
    for (const std::size_t eighth : {4U, 5U, 6U, 7U}) {
      Bytes jpeg = sound;
      for (std::size_t i = sound.size() * eighth / 8; i < jpeg.size() - 2; ++i)
        jpeg[i] = std::byte{0x55};
      for (int height = 1; height <= 50; ++height) {
        const Rect region{3, 0, 20, height};
        const Result<Picture> expected = read_region(*libjpeg(), jpeg, region);
        refused += expected ? 0 : 1;
        for (const std::uint64_t room : {std::uint64_t{1} << 20, std::uint64_t{0}}) {
          const JpegOptions fresh{.indexes = std::make_shared<SeekIndexes>(room)};
          const auto own = DecodeImage(ImageMode{}, true, {}, fresh).make_decoder();
          const Result<Picture> found = read_region(*own, jpeg, region);
          ASSERT_EQ(found.has_value(), expected.has_value()) << h << "x" << v << ", " << height;
          if (found) {
            EXPECT_TRUE(*found == *expected);
          } else {
            EXPECT_EQ(found.error().message(), expected.error().message());
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 10);
}

TEST_F(JpegIndexTest, WithoutRoomFilesAreReadFromTheirBeginEachTime) {
  const auto none = std::make_shared<SeekIndexes>(0);
  const auto own = DecodeImage(ImageMode{}, true, {}, {.indexes = none}).make_decoder();
  const Bytes jpeg = make_jpeg({.width = 200, .height = 200, .luma_h = 2, .luma_v = 2});
  const Picture expected = *read_whole(*libjpeg(), jpeg);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(*read_whole(*own, jpeg) == expected);
  EXPECT_EQ(none->snapshot().images.from_begin, 3U);
}

TEST_F(JpegIndexTest, OddAndUnsoundFilesHaveNoCoefficientsToBeKept) {
  const auto own = decoder();
  Bytes damaged = make_jpeg({.width = 200, .height = 200, .quality = 95});
  for (std::size_t i = damaged.size() * 3 / 4; i < damaged.size() - 2; ++i)
    damaged[i] = std::byte{0x55};
  const std::vector<Bytes> files = {make_jpeg({.progressive = true}),
                                    make_jpeg({.kind = Kind::kCmyk}),
                                    make_jpeg({.restart_interval = 2}), damaged};
  for (const Bytes& jpeg : files) {
    ASSERT_TRUE(own->open(jpeg));
    const bool might = own->recode_bytes() > 0;
    EXPECT_TRUE(recoded(*own, jpeg).empty());
    EXPECT_EQ(might, &jpeg == &files.back());
  }
  EXPECT_TRUE(recoded(*libjpeg(), make_jpeg({})).empty());
  EXPECT_TRUE(recoded(*decoder(ColorMode::kRgba), make_jpeg({})).empty());
}

TEST_F(JpegIndexTest, CoefficientsAreNoLargerThanIsSaidBefore) {
  const auto own = decoder();
  for (const int quality : {1, 30, 75, 100}) {
    for (const auto& [width, height] : {std::pair(1, 1), std::pair(213, 155)}) {
      const Bytes jpeg = make_jpeg({.width = width, .height = height, .quality = quality});
      ASSERT_TRUE(own->open(jpeg));
      const std::uint64_t most = own->recode_bytes();
      const std::vector<std::byte> kept = recoded(*own, jpeg);
      EXPECT_GT(kept.size(), 0U);
      EXPECT_LE(kept.size(), most);
    }
  }
}

TEST_F(JpegIndexTest, DamagedCoefficientsGiveDataLossOrBoundedRows) {
  KeyedRng rng(12);
  const auto own = decoder();
  const Size size{213, 155};
  const std::vector<std::byte> kept =
      recoded(*own, make_jpeg({.width = size.width, .height = size.height, .luma_h = 2}));
  int found_out = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> damaged = kept;
    const std::uint64_t reach = i % 3 == 0 ? 600 : damaged.size();  // the header alone
    for (std::uint64_t left = 1 + rng.below(8); left > 0; --left)
      damaged[rng.below(reach)] = static_cast<std::byte>(rng.below(256));
    if (i % 7 == 0) damaged.resize(rng.below(damaged.size()));
    const Result<Size> told = own->open_recoded(damaged);
    if (!told) {
      EXPECT_TRUE(told.error().code() == Code::kDataLoss ||
                  told.error().code() == Code::kResourceExhausted)
          << told.error().message();
      ++found_out;
      continue;
    }
    if (told->width > 2000 || told->height > 2000) continue;
    const Rect region = drawn_region(*told, rng);
    PictureSink rows(region, 3);
    const Status status = own->read(region, rows);
    found_out += status.ok() ? 0 : 1;
    EXPECT_TRUE(status.ok() || status.code() == Code::kDataLoss) << status.message();
  }
  EXPECT_GT(found_out, 700);
}

TEST_F(JpegIndexTest, VerifyComparesWhatIsToBeKept) {
  const auto own = decoder(ColorMode::kRgb, true, 1);
  const Bytes jpeg = make_jpeg({.width = 200, .height = 120, .luma_h = 2, .luma_v = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(recoded(*own, jpeg).empty());
    ASSERT_TRUE(read_whole(*own, jpeg));
  }
  EXPECT_EQ(indexes_->snapshot().compared, 4U) << "recoded twice, and read twice";
  EXPECT_EQ(indexes_->snapshot().different, 0U);
  EXPECT_EQ(images().by_libjpeg, 4U);
}

TEST_F(JpegIndexTest, VerifyComparesAndGivesLibjpegsRows) {
  const auto own = decoder(ColorMode::kRgb, true, 1);
  const Bytes jpeg = make_jpeg({.width = 200, .height = 120, .luma_h = 2, .luma_v = 2});
  const Picture expected = *read_whole(*libjpeg(), jpeg);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(*read_whole(*own, jpeg) == expected);
  EXPECT_EQ(indexes_->snapshot().compared, 3U);
  EXPECT_EQ(indexes_->snapshot().different, 0U);
  EXPECT_EQ(images().by_libjpeg, 3U) << "each of them once more";
}

TEST_F(JpegIndexTest, VerifyDrawsFromTheImagesOfAllDecoders) {
  const Bytes jpeg = make_jpeg({.width = 64, .height = 48});
  for (int i = 0; i < 8; ++i) {
    const auto own = decoder(ColorMode::kRgb, true, 16);
    for (int image = 0; image < 4; ++image) EXPECT_TRUE(read_whole(*own, jpeg));
  }
  EXPECT_EQ(indexes_->snapshot().compared, 2U) << "of 32 images";
}

TEST_F(JpegIndexTest, VerifyDoesNotCountWhatOurDecoderCouldNotRead) {
  const auto own = decoder(ColorMode::kRgb, true, 1);
  Bytes jpeg = make_jpeg({.width = 200, .height = 120, .luma_h = 2, .luma_v = 2});
  jpeg.resize(jpeg.size() / 2);
  EXPECT_FALSE(read_whole(*own, jpeg));
  EXPECT_EQ(indexes_->snapshot().compared, 0U);
}

// The index of this file tells of other coefficients, which nothing but a comparison shows.
TEST_F(JpegIndexTest, VerifyFindsOtherPixels) {
  const Bytes jpeg = make_jpeg({.width = 64, .height = 64, .kind = Kind::kGray});
  const auto frame = read_baseline_frame(jpeg);
  ASSERT_TRUE(frame);
  const SeekGrid grid{frame->mcus_across(), frame->mcus_down(), frame->mcus_across()};
  BaselineDecoder decoder_of_index;
  decoder_of_index.open(*frame, jpeg, BaselineDecoder::Output::kGray);
  PictureSink sink({0, 0, 64, 64}, 1);
  std::span<const std::uint64_t> entries;
  ASSERT_EQ(decoder_of_index.read_first(&grid, {0, 0, 64, 64}, sink, entries), 64);
  std::vector<std::uint64_t> wrong(entries.begin(), entries.end());
  for (std::uint64_t& entry : wrong) {
    SeekIndex::Entry told = SeekIndex::Entry::unpacked(entry);
    told.dc[0] = static_cast<std::int16_t>(told.dc[0] + 3);
    entry = told.packed();
  }
  ASSERT_TRUE(indexes_->add(indexes_->key_of(jpeg), grid, wrong));
  const Picture expected = *read_whole(*libjpeg(), jpeg);
  EXPECT_FALSE(*read_whole(*decoder(), jpeg) == expected);
  EXPECT_TRUE(*read_whole(*decoder(ColorMode::kRgb, true, 1), jpeg) == expected);
  EXPECT_EQ(indexes_->snapshot().compared, 1U);
  EXPECT_EQ(indexes_->snapshot().different, 1U);
  EXPECT_TRUE(*read_whole(*decoder(), jpeg) == expected) << "the file is odd from then on";
}

}  // namespace
}  // namespace spdld::media::test

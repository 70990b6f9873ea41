// SPDX-License-Identifier: Apache-2.0
// Damages good files in every way that files get damaged, and sees that decode_image either gives
// all rows or fails with a code of the data's. Deterministic: mutant n is the same everywhere.
// SPDLD_MUTATIONS says how many of each format (300). What they came to is printed, by its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <string>

#include "base/rng.h"
#include "tests/fuzz/image_outcome.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/format/avif_maker.h"
#include "tests/unit/media/format/bmp_maker.h"
#include "tests/unit/media/format/gif_maker.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/format/tiff_maker.h"
#include "tests/unit/media/format/webp_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/coded_jpeg_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

int mutations() { return mutations_wanted(300); }

// What a format needs for damage to get past its checksums.
using Mend = void (*)(Bytes&);

void expect_survived(const std::vector<Bytes>& good, std::uint64_t seed, Mend mend) {
  const std::vector<ImageMode> modes = {
      ImageMode::of(ColorMode::kRgb),         ImageMode::of(ColorMode::kGray),
      ImageMode::of(ColorMode::kRgba),        ImageMode::of(ColorMode::kGray16),
      ImageMode::of(ColorMode::kIndex),       ImageMode::unchanged(3, DType::kUInt8),
      ImageMode::unchanged(4, DType::kUInt16)};
  // Mutated headers may claim anything: the limit keeps the run short, as it would a daemon's.
  const auto fresh = [](const ImageMode& mode) {
    return DecodeImage(mode, true, {.max_pixels = 1'000'000}).make_decoder();
  };
  std::vector<std::unique_ptr<ImageDecoder>> decoders;
  const JpegOptions jpeg{.indexes = std::make_shared<SeekIndexes>(std::uint64_t{256} << 20)};
  for (const ImageMode& mode : modes)
    decoders.push_back(DecodeImage(mode, true, {.max_pixels = 1'000'000}, jpeg).make_decoder());
  std::map<std::string, int> outcomes;
  for (int i = 0; i < mutations(); ++i) {
    KeyedRng rng(mix64(seed, static_cast<std::uint64_t>(i)));
    Bytes bytes = mutant_of(good[rng.below(good.size())], rng);
    if (mend != nullptr && rng.below(4) != 0) mend(bytes);
    const std::size_t number = rng.below(4) == 0 ? rng.below(modes.size()) : 0;
    const ImageMode& mode = modes[number];
    const Outcome outcome = outcome_of(*decoders[number], mode, bytes, rng);
    ++outcomes[outcome.reason];
    EXPECT_TRUE(outcome.code == Code::kOk || outcome.code == Code::kDataLoss ||
                outcome.code == Code::kInvalidArgument || outcome.code == Code::kResourceExhausted)
        << "mutant " << i << ": " << outcome.reason;
    // What a file comes to must not depend on the files before it, nor on who reads it: of JPEG
    // `fresh` is libjpeg-turbo alone, and what comes for the second time is read by its index.
    EXPECT_EQ(outcome_of(*fresh(mode), mode, bytes, rng), outcome) << "mutant " << i;
    EXPECT_EQ(outcome_of(*decoders[number], mode, bytes, rng), outcome) << "mutant " << i;
    if (const auto recoded = recoded_outcome_of(*decoders[number], mode, bytes, rng)) {
      EXPECT_EQ(*recoded, outcome) << "mutant " << i;
    }
  }
  for (const auto& [reason, count] : outcomes) std::cout << "  " << count << " " << reason << '\n';
  // A run in which nothing failed, or everything for one reason, has tested nothing.
  EXPECT_GE(outcomes.size(), 2U);
}

TEST(MediaMutation, OfJpegsNeverBreaksTheDecoder) {
  using Kind = JpegRecipe::Kind;
  expect_survived(
      {make_jpeg({.luma_h = 2, .luma_v = 2}), make_jpeg({.progressive = true}),
       make_jpeg({.luma_h = 2, .restart_interval = 3, .exif = make_tiff(6, true)}),
       make_jpeg({.kind = Kind::kGray}), make_jpeg({.kind = Kind::kYcck}),
       make_jpeg({.luma_h = 2, .luma_v = 2, .progressive = true, .progressive_scans = 3}),
       make_jpeg({.arithmetic = true}), make_jpeg({.interleaved = false})},
      0x6a7067, nullptr);
}

// Of scans that are long enough to be read from many places at once.
TEST(MediaMutation, OfLongJpegsNeverBreaksTheDecoder) {
  KeyedRng rng(23);
  expect_survived(
      {make_jpeg({.width = 240, .height = 180, .luma_h = 2, .luma_v = 2, .quality = 95}),
       make_jpeg({.width = 240, .height = 180, .luma_h = 2, .quality = 98}),
       make_jpeg({.width = 190, .height = 260, .quality = 92}),
       make_jpeg({.width = 260, .height = 190, .kind = JpegRecipe::Kind::kGray}),
       drawn_jpeg(rng, 1500)},
      0x6c6a7067, nullptr);
}

TEST(MediaMutation, OfPngsNeverBreaksTheDecoder) {
  std::vector<std::uint8_t> palette(48);
  for (std::size_t i = 0; i < palette.size(); ++i) palette[i] = static_cast<std::uint8_t>(i * 5);
  expect_survived({make_png({.width = 90, .height = 70}),
                   make_png({.width = 90, .height = 70, .interlaced = true}),
                   make_png({.color_type = 3, .bit_depth = 4, .palette = palette}),
                   make_png({.color_type = 6, .bit_depth = 16, .interlaced = true}),
                   make_png({.color_type = 0, .bit_depth = 1, .exif = make_tiff(8, false)}),
                   make_png({.color_type = 4, .bit_depth = 8})},
                  0x706e67, mend_checksums);
}

TEST(MediaMutation, OfAvifsNeverBreaksTheDecoder) {
  expect_survived({make_avif({}), make_avif({.depth = 10, .chroma = 420, .alpha = true}),
                   make_avif({.chroma = 400, .irot = 1, .imir = 0}),
                   make_avif({.width = 64, .height = 64, .columns = 2}),
                   make_avif({.exif = make_tiff(6, true)}), make_avif({.images = 2})},
                  0x61766966, nullptr);
}

TEST(MediaMutation, OfBmpsNeverBreaksTheDecoder) {
  expect_survived(
      {make_bmp({}), make_bmp({.bits = 1, .palette = some_colors(2)}),
       make_bmp({.bits = 4, .header_bytes = 12, .palette = some_colors(16)}),
       make_bmp({.bits = 8, .palette = some_colors(256), .run_length = true}),
       make_bmp({.bits = 4, .palette = some_colors(16), .run_length = true}),
       make_bmp({.bits = 16, .top_down = true, .masks = {0xF800, 0x7E0, 0x1F}}),
       make_bmp({.bits = 32, .header_bytes = 124, .masks = {0xFF0000, 0xFF00, 0xFF, 0xFF000000}})},
      0x626d70, nullptr);
}

TEST(MediaMutation, OfGifsNeverBreaksTheDecoder) {
  expect_survived(
      {make_gif({.palette = some_colors(16)}),
       make_gif({.canvas = {40, 30},
                 .palette = some_colors(16),
                 .images = {{.place = {5, 3, 10, 8}, .interlaced = true, .transparent = 7}}}),
       make_gif({.images = {{.bits = 8, .palette = some_colors(256)}}}),
       make_gif({.palette = some_colors(2), .images = {{.bits = 1}, {.bits = 1, .seed = 2}}})},
      0x676966, nullptr);
}

TEST(MediaMutation, OfTiffsNeverBreaksTheDecoder) {
  expect_survived(
      {make_tiff_file({.rows_per_strip = 8}), make_tiff_file({.compression = 5, .tile = {16, 16}}),
       make_tiff_file({.samples = 4, .bits = 16, .compression = 8, .planar = true}),
       make_tiff_file({.photometric = 3, .samples = 1, .bits = 4, .compression = 32773}),
       make_tiff_file({.photometric = 0, .samples = 1, .bits = 1, .bits_reversed = true}),
       make_tiff_file({.compression = 8, .rows_per_strip = 4, .differences = true}),
       make_tiff_file({.width = 16,
                       .height = 100,
                       .photometric = 0,
                       .samples = 1,
                       .bits = 1,
                       .compression = 3,
                       .strip = fax_codes(100, false)}),
       make_tiff_file({.width = 16,
                       .height = 100,
                       .photometric = 0,
                       .samples = 1,
                       .bits = 1,
                       .compression = 4,
                       .strip = fax_codes(100, true)}),
       make_tiff_file({.photometric = 5, .samples = 4, .big_endian = true, .big_tiff = true})},
      0x746966, nullptr);
}

TEST(MediaMutation, OfWebpsNeverBreaksTheDecoder) {
  const Bytes frame = webp_chunks_of(make_webp({.width = 20, .height = 14, .alpha = true}));
  expect_survived(
      {make_webp({}), make_webp({.alpha = true}), make_webp({.lossless = true}),
       make_webp({.alpha = true, .lossless = true}),
       make_webp_of({61, 43}, 8,
                    {webp_chunks_of(make_webp({})), webp_chunk("EXIF", make_tiff(6, true))}),
       make_webp_of({61, 43}, 0x12,
                    {webp_chunk("ANIM", Bytes(6, std::byte{7})), webp_frame({10, 6, 20, 14}, frame),
                     webp_frame({0, 0, 20, 14}, frame)})},
      0x77656270, nullptr);
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "media/image/pixels.h"
#include "tests/unit/media/format/bmp_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

constexpr int kTypeOffset = 14;

// `bits` of a number from the mask's lowest on, stretched to 8 bits.
unsigned field(std::uint32_t pixel, std::uint32_t mask) {
  const int shift = __builtin_ctz(mask);
  return (pixel >> shift & mask >> shift) * 255 / (mask >> shift);
}

PaletteColor meaning(const BmpRecipe& recipe, int x, int y) {
  const std::uint32_t pixel = recipe.pixel(x, y);
  if (!recipe.palette.empty()) return recipe.palette[pixel];
  std::vector<std::uint32_t> masks = recipe.masks;
  if (masks.empty()) {
    masks = recipe.bits == 16 ? std::vector<std::uint32_t>{0x7C00, 0x3E0, 0x1F}
                              : std::vector<std::uint32_t>{0xFF0000, 0xFF00, 0xFF};
  }
  return {static_cast<std::uint8_t>(field(pixel, masks[0])),
          static_cast<std::uint8_t>(field(pixel, masks[1])),
          static_cast<std::uint8_t>(field(pixel, masks[2]))};
}

void expect_meaning(const BmpRecipe& recipe) {
  SCOPED_TRACE(::testing::Message()
               << recipe.bits << " bits, top-down " << recipe.top_down << ", header "
               << recipe.header_bytes << ", runs " << recipe.run_length << ", " << recipe.width
               << "x" << recipe.height);
  const Bytes bmp = make_bmp(recipe);
  const auto decoder = make_decoder();
  const auto gray_decoder = make_decoder(ColorMode::kGray);
  const Result<Picture> rgb = read_whole(*decoder, bmp);
  const Result<Picture> gray = read_whole(*gray_decoder, bmp, 1);
  ASSERT_TRUE(rgb.has_value()) << rgb.error().message();
  ASSERT_TRUE(gray.has_value()) << gray.error().message();
  ASSERT_EQ((Size{rgb->width, rgb->height}), (Size{recipe.width, recipe.height}));
  for (int y = 0; y < recipe.height; ++y) {
    for (int x = 0; x < recipe.width; ++x) {
      const PaletteColor color = meaning(recipe, x, y);
      ASSERT_EQ(rgb->at(x, y)[0], color.red) << x << "," << y;
      ASSERT_EQ(rgb->at(x, y)[1], color.green) << x << "," << y;
      ASSERT_EQ(rgb->at(x, y)[2], color.blue) << x << "," << y;
      ASSERT_EQ(*gray->at(x, y), luma(color.red, color.green, color.blue)) << x << "," << y;
    }
  }
  const Rect region{recipe.width / 2, recipe.height / 3, recipe.width - recipe.width / 2, 1};
  EXPECT_EQ(*read_region(*decoder, bmp, region), rgb->cut(region));
}

TEST(Bmp, GivesThePixelsOfEveryDepthAndHeader) {
  for (const int bits : {1, 4, 8, 16, 24, 32}) {
    for (const bool top_down : {false, true}) {
      for (const unsigned header : {12U, 40U, 52U, 56U, 64U, 108U, 124U}) {
        for (const Size size : {Size{19, 13}, Size{1, 1}, Size{64, 5}}) {
          if (header == 12 && top_down) continue;
          BmpRecipe recipe{.width = size.width,
                           .height = size.height,
                           .bits = bits,
                           .top_down = top_down,
                           .header_bytes = header};
          if (bits <= 8) recipe.palette = some_colors(1 << bits);
          expect_meaning(recipe);
        }
      }
    }
  }
}

TEST(Bmp, GivesThePixelsOfEveryOrderOfBits) {
  using Masks = std::vector<std::uint32_t>;
  for (const Masks& masks :
       {Masks{0xF800, 0x7E0, 0x1F}, Masks{0x7C00, 0x3E0, 0x1F}, Masks{0xF00, 0xF0, 0xF}})
    expect_meaning({.bits = 16, .masks = masks});
  for (const Masks& masks : {Masks{0xFF0000, 0xFF00, 0xFF}, Masks{0xFF000000, 0xFF0000, 0xFF00},
                             Masks{0xFF, 0xFF00, 0xFF0000}, Masks{0xFF00, 0xFF0000, 0xFF000000}})
    expect_meaning({.bits = 32, .masks = masks});
  expect_meaning({.bits = 32, .header_bytes = 108, .masks = {0xFF0000, 0xFF00, 0xFF, 0xFF000000}});
}

TEST(Bmp, GivesThePixelsOfRuns) {
  for (const int bits : {4, 8}) {
    for (const bool top_down : {false, true}) {
      expect_meaning({.bits = bits,
                      .top_down = top_down,
                      .palette = some_colors(1 << bits),
                      .run_length = true});
    }
  }
}

TEST(Bmp, ReadsRunsWhoseEndIsNotMarked) {
  const BmpRecipe recipe{.bits = 8, .palette = some_colors(256), .run_length = true};
  Bytes bmp = make_bmp(recipe);
  const Result<Picture> before = read_whole(*make_decoder(), bmp);
  bmp.resize(bmp.size() - 4);  // the last line's end and the picture's
  const Result<Picture> after = read_whole(*make_decoder(), bmp);
  ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
  EXPECT_EQ(*before, *after);
}

TEST(Bmp, TakesNumbersBeyondItsPaletteForGrays) {
  BmpRecipe recipe{.bits = 8, .palette = some_colors(256)};
  const unsigned last = recipe.pixel(3, 4);
  Bytes bmp = make_bmp(recipe);
  bmp[kTypeOffset + 32] = static_cast<std::byte>(last);  // colours in the palette
  bmp[kTypeOffset + 33] = std::byte{0};
  const Result<Picture> picture = read_whole(*make_decoder(), bmp);
  ASSERT_TRUE(picture.has_value()) << picture.error().message();
  EXPECT_EQ(*picture->at(3, 4), last);
  EXPECT_EQ(picture->at(3, 4)[1], last);
}

TEST(Bmp, HasTheSizeOfItsHeaderWhateverItsFileHeaderSays) {
  Bytes bmp = make_bmp({});
  const Result<Picture> before = read_whole(*make_decoder(), bmp);
  for (const std::byte wrong : {std::byte{0}, std::byte{255}}) {
    std::fill(bmp.begin() + 2, bmp.begin() + 6, wrong);
    const Result<Picture> after = read_whole(*make_decoder(), bmp);
    ASSERT_TRUE(before.has_value() && after.has_value()) << after.error().message();
    EXPECT_EQ(*before, *after);
  }
}

TEST(BmpTruncation, IsAFailureWhereverTheFileEnds) {
  const auto decoder = make_decoder();
  for (const Bytes& bmp :
       {make_bmp({.width = 20}), make_bmp({.bits = 1, .palette = some_colors(2)}),
        make_bmp({.bits = 32, .masks = {0xFF0000, 0xFF00, 0xFF}}),
        make_bmp({.bits = 8, .palette = some_colors(256), .run_length = true})}) {
    // Bytes that only fill up the last line, or mark the end of runs, are not missed.
    for (std::size_t size = 1; size + 4 < bmp.size(); ++size) {
      const Bytes part(bmp.begin(), bmp.begin() + static_cast<std::ptrdiff_t>(size));
      const Result<Size> opened = decoder->open(part);
      ASSERT_FALSE(opened.has_value()) << size << " of " << bmp.size() << " bytes";
      ASSERT_EQ(opened.error().code(), Code::kDataLoss);
      ASSERT_THAT(opened.error().message(), HasSubstr("truncated BMP: no "));
    }
  }
}

// A good file with one number in its headers changed.
Status failure_with(std::size_t at, std::uint32_t value, int bytes, const BmpRecipe& recipe = {}) {
  Bytes bmp = make_bmp(recipe);
  for (int i = 0; i < bytes; ++i)
    bmp[at + static_cast<std::size_t>(i)] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  return failure_of(bmp);
}

TEST(BmpStructure, ThatBreaksTheFormatIsAFailure) {
  const auto expect = [](const Status& status, std::string_view why) {
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("corrupt BMP: " + std::string(why)));
  };
  expect(failure_with(18, 0, 4), "impossible size 0x13");
  expect(failure_with(18, 0x80000001, 4), "impossible size -2147483647x13");
  expect(failure_with(22, 0, 4), "impossible size 19x0");
  expect(failure_with(22, 0x80000000, 4), "impossible size");
  expect(failure_with(26, 2, 2), "2 planes instead of one");
  expect(failure_with(10, 20, 4), "its pixels begin inside its header");
}

TEST(BmpStructure, OfAKindThatIsNotReadIsNamed) {
  const auto expect = [](const Status& status, std::string_view what) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("unsupported BMP: " + std::string(what)));
  };
  expect(failure_with(14, 41, 4), "a header of 41 bytes");
  expect(failure_with(28, 2, 2), "2 bits a pixel");
  expect(failure_with(28, 64, 2), "64 bits a pixel");
  expect(failure_with(30, 4, 4), "compression 4 of 24 bits a pixel");
  expect(failure_with(30, 1, 4), "compression 1 of 24 bits a pixel");
  expect(failure_with(30, 3, 4, {.bits = 8, .palette = some_colors(256)}),
         "compression 3 of 8 bits a pixel");
  expect(failure_of(make_bmp({.bits = 16, .masks = {0x1F, 0x3E0, 0x7C00}})),
         "its colours lie in other bits");
}

TEST(BmpCorruption, OfRunsIsAFailureAndLeavesTheDecoderReady) {
  const BmpRecipe recipe{.bits = 4, .palette = some_colors(16), .run_length = true};
  const Bytes good = make_bmp(recipe);
  Bytes bad = good;
  const std::size_t data = 14 + 40 + 64;
  bad[data] = std::byte{0};  // pixels as they are, more than a line has
  bad[data + 1] = std::byte{40};
  const auto decoder = make_decoder();
  const Result<Picture> before = read_whole(*decoder, good);
  const Result<Picture> broken = read_whole(*decoder, bad);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code(), Code::kDataLoss);
  EXPECT_THAT(broken.error().message(), HasSubstr("corrupt BMP: FFmpeg says: "));
  const Result<Picture> after = read_whole(*decoder, good);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(*before, *after);
}

TEST(BmpLimits, RefuseTooManyPixelsBeforeTheyAreLookedAt) {
  const Status status = failure_of(make_bmp({.width = 10, .height = 10}), {.max_pixels = 99});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "image of 10x10 = 100 pixels is over the limit of 99; raise decode_image.max_pixels to "
            "read it");
}

TEST(BmpLimits, RefuseAHeaderThatClaimsMoreThanTheFileHolds) {
  const Status status = failure_with(18, 100'000'000, 4);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("truncated BMP: no last pixels"));
}

}  // namespace
}  // namespace spdld::media::test

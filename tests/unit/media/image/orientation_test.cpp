// SPDX-License-Identifier: Apache-2.0
#include "media/image/orientation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

// EXIF's own words: which side of the upright picture the stored row 0 and column 0 are.
enum class Side { kTop, kBottom, kLeft, kRight };
struct Sides {
  int exif;
  Side row0;
  Side column0;
};
constexpr std::array kSides = {
    Sides{1, Side::kTop, Side::kLeft},     Sides{2, Side::kTop, Side::kRight},
    Sides{3, Side::kBottom, Side::kRight}, Sides{4, Side::kBottom, Side::kLeft},
    Sides{5, Side::kLeft, Side::kTop},     Sides{6, Side::kRight, Side::kTop},
    Sides{7, Side::kRight, Side::kBottom}, Sides{8, Side::kLeft, Side::kBottom}};

// Turns a stored picture upright pixel by pixel, from EXIF's words.
Picture turned(const Picture& stored, const Sides& sides) {
  const bool lying = sides.row0 == Side::kLeft || sides.row0 == Side::kRight;
  Picture upright{lying ? stored.height : stored.width,
                  lying ? stored.width : stored.height,
                  stored.channels,
                  {}};
  upright.pixels.resize(stored.pixels.size());
  const auto place = [&](Side side, int distance) {
    switch (side) {
      case Side::kBottom: return upright.height - 1 - distance;
      case Side::kRight: return upright.width - 1 - distance;
      default: return distance;
    }
  };
  for (int row = 0; row < stored.height; ++row) {
    for (int column = 0; column < stored.width; ++column) {
      const int across = place(sides.row0, row);
      const int along = place(sides.column0, column);
      const std::uint8_t* from = stored.at(column, row);
      std::copy(from, from + stored.channels,
                lying ? upright.at(across, along) : upright.at(along, across));
    }
  }
  return upright;
}

void expect_upright(const Bytes& with_tag, const Bytes& without, const Sides& sides,
                    ColorMode mode) {
  const int channels = ImageMode::of(mode).channels;
  const auto decoder = make_decoder(mode);
  const Result<Picture> stored = read_whole(*decoder, without, channels);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  const Picture expected = turned(*stored, sides);
  const Result<Picture> upright = read_whole(*decoder, with_tag, channels);
  ASSERT_TRUE(upright.has_value()) << upright.error().message();
  ASSERT_EQ(*upright, expected) << "orientation " << sides.exif;

  KeyedRng rng(static_cast<std::uint64_t>(sides.exif));
  for (int i = 0; i < 100; ++i) {
    Rect region;
    region.x = static_cast<int>(rng.below(static_cast<std::uint64_t>(expected.width)));
    region.y = static_cast<int>(rng.below(static_cast<std::uint64_t>(expected.height)));
    region.width = 1 + static_cast<int>(rng.below(expected.width - region.x));
    region.height = 1 + static_cast<int>(rng.below(expected.height - region.y));
    const Result<Picture> part = read_region(*decoder, with_tag, region, channels);
    ASSERT_TRUE(part.has_value());
    ASSERT_EQ(*part, expected.cut(region)) << "orientation " << sides.exif;
  }
}

TEST(Orientation, TurnsEveryRegionOfAJpegUpright) {
  for (const Sides& sides : kSides) {
    const JpegRecipe plain{.width = 61, .height = 45, .luma_h = 2, .luma_v = 2};
    JpegRecipe tagged = plain;
    tagged.exif = make_tiff(static_cast<unsigned>(sides.exif), sides.exif % 2 == 0);
    expect_upright(make_jpeg(tagged), make_jpeg(plain), sides, ColorMode::kRgb);
    expect_upright(make_jpeg(tagged), make_jpeg(plain), sides, ColorMode::kGray);
  }
}

TEST(Orientation, TurnsEveryRegionOfAPngUpright) {
  for (const Sides& sides : kSides) {
    const PngRecipe plain{.width = 23, .height = 14};
    PngRecipe tagged = plain;
    tagged.exif = make_tiff(static_cast<unsigned>(sides.exif), true);
    expect_upright(make_png(tagged), make_png(plain), sides, ColorMode::kRgb);
  }
}

TEST(Orientation, IsLeftAloneWhenNotAskedFor) {
  const JpegRecipe plain{.width = 61, .height = 45};
  JpegRecipe tagged = plain;
  tagged.exif = make_tiff(6, true);
  const auto decoder = make_decoder(ColorMode::kRgb, false);
  const Result<Picture> stored = read_whole(*decoder, make_jpeg(plain));
  const Result<Picture> read = read_whole(*decoder, make_jpeg(tagged));
  ASSERT_TRUE(stored.has_value() && read.has_value());
  EXPECT_EQ(*read, *stored);
}

TEST(Orientation, OfBrokenExifLeavesTheImageAsItIs) {
  const JpegRecipe plain{.width = 61, .height = 45};
  JpegRecipe tagged = plain;
  tagged.exif = make_tiff(6, true);
  tagged.exif.resize(15);
  const auto decoder = make_decoder();
  const Result<Picture> stored = read_whole(*decoder, make_jpeg(plain));
  const Result<Picture> read = read_whole(*decoder, make_jpeg(tagged));
  ASSERT_TRUE(stored.has_value() && read.has_value());
  EXPECT_EQ(*read, *stored);
}

TEST(Orientation, MakesTheSizeThatOpenGivesUpright) {
  JpegRecipe recipe{.width = 61, .height = 45};
  for (int value = 1; value <= 8; ++value) {
    recipe.exif = make_tiff(static_cast<unsigned>(value), false);
    const Bytes jpeg = make_jpeg(recipe);
    const Result<Size> size = make_decoder()->open(jpeg);
    ASSERT_TRUE(size.has_value());
    EXPECT_EQ(*size, value < 5 ? (Size{61, 45}) : (Size{45, 61})) << value;
  }
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#include "media/video/yuv_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/support/forced_target.h"
#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/media/image/row_collector.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

struct Format {
  std::string name;  // FFmpeg's
  int bits = 8;
  int shift_x = 0;
  int shift_y = 0;
};

// A picture of noise that stays inside the colours that there are: swscale wraps far beyond them.
class Noise {
 public:
  Noise(const Format& format, Size size, std::uint64_t seed) {
    picture_.size = size;
    picture_.bits = format.bits;
    picture_.shift_x = format.shift_x;
    picture_.shift_y = format.shift_y;
    KeyedRng rng(seed);
    const int chroma_width = (size.width + (1 << format.shift_x) - 1) >> format.shift_x;
    const int chroma_height = (size.height + (1 << format.shift_y) - 1) >> format.shift_y;
    std::size_t offsets[3];
    for (int plane = 0; plane < 3; ++plane) {
      const int width = plane == 0 ? size.width : chroma_width;
      const int height = plane == 0 ? size.height : chroma_height;
      offsets[plane] = bytes_.size();
      picture_.planes[static_cast<std::size_t>(plane)].stride_bytes =
          width * (format.bits > 8 ? 2 : 1);
      const std::uint64_t least = plane == 0 ? 40 : 64;
      const std::uint64_t most = plane == 0 ? 200 : 192;
      for (int i = 0; i < width * height; ++i) {
        const int scale = format.bits - 8;
        const auto value =
            static_cast<std::uint16_t>((least << scale) + rng.below((most - least) << scale));
        bytes_.push_back(static_cast<std::byte>(value & 255));
        if (format.bits > 8) bytes_.push_back(static_cast<std::byte>(value >> 8));
      }
    }
    for (std::size_t plane = 0; plane < 3; ++plane)
      picture_.planes[plane].data =
          reinterpret_cast<const std::uint8_t*>(bytes_.data()) + offsets[plane];
  }

  VideoPicture& picture() { return picture_; }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
  VideoPicture picture_;
};

std::vector<std::uint8_t> pixels_of(YuvRows& rows, const VideoPicture& picture, const Rect& region,
                                    int channels = 3) {
  const auto row_bytes = static_cast<std::size_t>(region.width * channels);
  std::vector<std::uint8_t> pixels(row_bytes * static_cast<std::size_t>(region.height));
  RowCollector sink(pixels, row_bytes);
  rows.give(picture, region, channels, sink);
  return pixels;
}

Rect whole(const VideoPicture& picture) { return {0, 0, picture.size.width, picture.size.height}; }

std::vector<Format> formats() {
  return {{"yuv420p", 8, 1, 1},      {"yuv422p", 8, 1, 0},      {"yuv444p", 8, 0, 0},
          {"yuv440p", 8, 0, 1},      {"yuv410p", 8, 2, 2},      {"yuv420p9le", 9, 1, 1},
          {"yuv420p10le", 10, 1, 1}, {"yuv444p12le", 12, 0, 0}, {"yuv422p16le", 16, 1, 0}};
}

// Each is a run of ffmpeg. OfARegionAreThoseOfTheWhole has other sizes for the sanitizers.
#ifdef SPDLD_SANITIZED
const std::vector<Size> kWholeSizes{{7, 9}, {2, 2}};
#else
const std::vector<Size> kWholeSizes{{64, 48}, {63, 47}, {7, 9}, {7, 79},
                                    {6, 539}, {5, 5},   {2, 2}, {3, 7}};
#endif

TEST(YuvRows, AreWithinOneLevelOfSwscale) {
  const MediaMaker maker;
  YuvRows rows;
  std::uint64_t seed = 1;
  const std::vector<std::pair<VideoPicture::Matrix, std::string>> matrices{
      {VideoPicture::Matrix::kBt601, "bt601"},
      {VideoPicture::Matrix::kBt709, "bt709"},
      {VideoPicture::Matrix::kBt2020, "bt2020"}};
  for (const Format& format : formats()) {
    for (const Size size : kWholeSizes) {
      for (const int chroma_x : {ChromaAxis::kFirst, ChromaAxis::kBetween}) {
        ++seed;
        Noise noise(format, size, seed);
        VideoPicture& picture = noise.picture();
        picture.matrix = matrices[seed % 3].first;
        picture.full_range = seed % 2 == 0;
        picture.chroma_x = chroma_x;
        picture.chroma_y = seed % 5 == 0   ? ChromaAxis::kFirst
                           : seed % 5 == 1 ? ChromaAxis::kSecond
                                           : ChromaAxis::kBetween;
        std::string places;
        if (format.shift_x == 1) places += ":in_h_chr_pos=" + std::to_string(picture.chroma_x);
        if (format.shift_y == 1) places += ":in_v_chr_pos=" + std::to_string(picture.chroma_y);
        maker.write("in.yuv", noise.bytes());
        const Bytes expected =
            maker.make("-f rawvideo -pix_fmt " + format.name + " -s " + std::to_string(size.width) +
                           "x" + std::to_string(size.height) +
                           " -i in.yuv -vf scale=sws_flags=bilinear+accurate_rnd+full_chroma_int+"
                           "full_chroma_inp:in_color_matrix=" +
                           matrices[seed % 3].second +
                           ":in_range=" + (picture.full_range ? "full" : "limited") + places +
                           ",format=rgb24 -f rawvideo",
                       "out.rgb");
        const std::vector<std::uint8_t> pixels = pixels_of(rows, picture, whole(picture));
        ASSERT_EQ(expected.size(), pixels.size());
        int most = 0;
        for (std::size_t i = 0; i < pixels.size(); ++i)
          most = std::max(most, std::abs(static_cast<int>(expected[i]) - int{pixels[i]}));
        EXPECT_LE(most, 1) << format.name << " " << size.width << "x" << size.height << places;
      }
    }
  }
}

TEST(YuvRows, OfARegionAreThoseOfTheWhole) {
  YuvRows rows;
  KeyedRng rng(3);
  for (const Format& format : formats()) {
    for (const Size size : {Size{64, 48}, {63, 47}, {5, 5}}) {
      Noise noise(format, size, rng.next());
      noise.picture().chroma_x = rng.below(2) == 0 ? ChromaAxis::kFirst : ChromaAxis::kBetween;
      const std::vector<std::uint8_t> all =
          pixels_of(rows, noise.picture(), whole(noise.picture()));
      for (int i = 0; i < 40; ++i) {
        Rect region;
        region.x = static_cast<int>(rng.below(static_cast<std::uint64_t>(size.width)));
        region.y = static_cast<int>(rng.below(static_cast<std::uint64_t>(size.height)));
        region.width =
            1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(size.width - region.x)));
        region.height =
            1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(size.height - region.y)));
        std::vector<std::uint8_t> expected;
        for (int y = region.y; y < region.y + region.height; ++y) {
          const auto row = all.begin() + (y * size.width + region.x) * 3;
          expected.insert(expected.end(), row, row + region.width * 3);
        }
        ASSERT_EQ(pixels_of(rows, noise.picture(), region), expected)
            << format.name << " " << region.x << " " << region.width;
      }
    }
  }
}

TEST(YuvRows, AreTheSameOnAllInstructionSets) {
  const auto everything = [] {
    YuvRows rows;
    KeyedRng rng(9);
    std::vector<std::uint8_t> all;
    for (const Format& format : formats()) {
      for (int i = 0; i < 12; ++i) {
        const Size size{1 + static_cast<int>(rng.below(150)), 1 + static_cast<int>(rng.below(30))};
        Noise noise(format, size, rng.next());
        noise.picture().chroma_x = i % 2 == 0 ? ChromaAxis::kFirst : ChromaAxis::kBetween;
        noise.picture().full_range = i % 3 == 0;
        const int channels = i % 4 == 3 ? 1 : 3;
        const auto pixels = pixels_of(rows, noise.picture(), whole(noise.picture()), channels);
        all.insert(all.end(), pixels.begin(), pixels.end());
      }
    }
    return all;
  };
  const std::vector<std::uint8_t> expected = everything();
  for (const std::int64_t target : spdld::testing::all_targets()) {
    const spdld::testing::ForcedTarget forced(target);
    EXPECT_TRUE(everything() == expected) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace spdld::media::test

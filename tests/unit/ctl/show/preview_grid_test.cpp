// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/preview_grid.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ctl/failure.h"
#include "tests/unit/ctl/show/pixel.h"

namespace spdld::ctl {
namespace {

Preview with_tensor(const std::string& kind, const std::string& dtype,
                    const std::vector<std::int64_t>& shape, int rows, std::string data) {
  Preview preview;
  v1::Tensor& tensor = *preview.header.add_tensors();
  tensor.set_name("field");
  tensor.set_kind(kind);
  tensor.set_dtype(dtype);
  for (const std::int64_t extent : shape) tensor.add_shape(extent);
  for (int row = 0; row < rows; ++row) preview.header.add_indices(row);
  preview.data.push_back(std::move(data));
  return preview;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

constexpr std::array<int, 3> kEmpty{64, 64, 64};
constexpr std::array<int, 3> kWave{70, 240, 240};

// Two clips of five frames of 16 x 16; each value tells its row, frame and channel.
enum class Axes { kTchw, kThwc, kCthw };
std::string clips(Axes axes) {
  constexpr int kFrames = 5;
  constexpr int kPixels = 16 * 16;
  std::string data(std::size_t{2} * kFrames * kPixels * 3, '\0');
  for (int row = 0; row < 2; ++row) {
    for (int frame = 0; frame < kFrames; ++frame) {
      for (int channel = 0; channel < 3; ++channel) {
        for (int at = 0; at < kPixels; ++at) {
          const int in_row = axes == Axes::kTchw   ? (frame * 3 + channel) * kPixels + at
                             : axes == Axes::kThwc ? (frame * kPixels + at) * 3 + channel
                                                   : (channel * kFrames + frame) * kPixels + at;
          data[static_cast<std::size_t>(row * kFrames * kPixels * 3 + in_row)] =
              static_cast<char>(row * 100 + frame * 10 + channel);
        }
      }
    }
  }
  return data;
}

TEST(PreviewGrid, DrawsClipsOfAnyLayoutAsLinesOfFrames) {
  const Grid first =
      make_grid(with_tensor("dense", "uint8", {5, 3, 16, 16}, 2, clips(Axes::kTchw)));
  const Grid last = make_grid(with_tensor("dense", "uint8", {5, 16, 16, 3}, 2, clips(Axes::kThwc)));
  const Grid outer =
      make_grid(with_tensor("dense", "uint8", {3, 5, 16, 16}, 2, clips(Axes::kCthw)));
  EXPECT_EQ(first.columns, 5u);
  EXPECT_EQ(first.rows, 2u);
  EXPECT_EQ(first.picture.width, 5u * 20 - 4);
  EXPECT_EQ(first.picture.height, 36u);
  EXPECT_EQ(pixel(first.picture, 15, 15), (std::array<int, 3>{0, 1, 2}));
  EXPECT_EQ(pixel(first.picture, 60 + 15, 15), (std::array<int, 3>{30, 31, 32}));
  EXPECT_EQ(pixel(first.picture, 80 + 15, 35), (std::array<int, 3>{140, 141, 142}));
  EXPECT_EQ(last.picture.rgb, first.picture.rgb);
  EXPECT_EQ(outer.picture.rgb, first.picture.rgb);
}

TEST(PreviewGrid, LeavesFramesOfLongClipsOutEvenly) {
  std::string data;
  for (int frame = 0; frame < 64; ++frame) data += std::string(8 * 8 * 3, static_cast<char>(frame));
  const Grid grid = make_grid(with_tensor("dense", "uint8", {64, 3, 8, 8}, 1, data));
  EXPECT_EQ(grid.columns, 16u);
  EXPECT_EQ(pixel(grid.picture, 12 * 15 + 7, 7), (std::array<int, 3>{60, 60, 60}));
  EXPECT_NE(grid.scale.find("16 of 64 frames"), std::string::npos) << grid.scale;
}

TEST(PreviewGrid, PutsSeveralClipsOfOneRowBehindEachOther) {
  const std::string clip = clips(Axes::kTchw);
  const Grid grid = make_grid(with_tensor("dense", "uint8", {2, 5, 3, 16, 16}, 1, clip));
  EXPECT_EQ(grid.columns, 10u);
  EXPECT_EQ(pixel(grid.picture, 9 * 20 + 15, 15), (std::array<int, 3>{140, 141, 142}));
}

TEST(PreviewGrid, DrawsSoundChannelBelowChannel) {
  // The left channel is loud in its second half, the right one is silent but for the first sample.
  std::vector<float> values(2 * 1280, 0.0F);
  for (int i = 640; i < 1280; ++i) values[static_cast<std::size_t>(i)] = i % 2 == 0 ? 0.5F : -0.5F;
  values[1280] = -0.25F;
  const Grid grid = make_grid(with_tensor("dense", "float32", {2, 1280}, 1, bytes_of(values)));
  EXPECT_EQ(grid.tensor, "field");
  EXPECT_EQ(grid.picture.width, 640u);
  EXPECT_EQ(grid.picture.height, 128u);
  EXPECT_EQ(pixel(grid.picture, 639, 0), kWave);
  EXPECT_EQ(pixel(grid.picture, 639, 63), kWave);
  EXPECT_EQ(pixel(grid.picture, 200, 0), kEmpty);
  EXPECT_EQ(pixel(grid.picture, 200, 32), kWave);
  EXPECT_EQ(pixel(grid.picture, 0, 64 + 46), kWave);
  EXPECT_EQ(pixel(grid.picture, 1, 64 + 46), kEmpty);
}

TEST(PreviewGrid, DrawsRowsOfSoundThatDifferInLength) {
  Preview preview =
      with_tensor("ragged", "float32", {1, -1}, 2, bytes_of({1, 1, 1, -1, -1, -1, -1}));
  v1::PreviewRows& rows = *preview.header.add_packed();
  for (const std::uint64_t begin : {0, 12, 28}) rows.add_begins(begin);
  for (const std::int64_t extent : {1, 3, 1, 4}) rows.add_shapes(extent);
  const Grid grid = make_grid(preview);
  EXPECT_EQ(grid.rows, 2u);
  EXPECT_EQ(pixel(grid.picture, 600, 0), kWave);
  EXPECT_EQ(pixel(grid.picture, 600, 68 + 63), kWave);
}

TEST(PreviewGrid, LeavesOutWhatIsNoNumberOrHasNoSamples) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Grid broken = make_grid(
      with_tensor("dense", "float32", {1, 640}, 1, bytes_of(std::vector<float>(640, kNan))));
  EXPECT_EQ(pixel(broken.picture, 600, 32), kEmpty);

  Preview empty = with_tensor("ragged", "float32", {1, -1}, 1, "");
  v1::PreviewRows& rows = *empty.header.add_packed();
  for (int i = 0; i < 2; ++i) rows.add_begins(0);
  for (const std::int64_t extent : {1, 0}) rows.add_shapes(extent);
  EXPECT_EQ(pixel(make_grid(empty).picture, 600, 32), kEmpty);
}

TEST(PreviewGrid, SaysThatClipsOfSeveralSizesAreNotDrawn) {
  try {
    make_grid(with_tensor("ragged", "uint8", {4, 3, -1, -1}, 1, ""));
    FAIL() << "it is drawn";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("where their rows have one size"), std::string::npos)
        << failure.what();
  }
}

TEST(PreviewGrid, RefusesRowsThatContradictThemselves) {
  // Shapes that promise more than came, and none at all.
  Preview preview = with_tensor("ragged", "float32", {1, -1}, 1, bytes_of({1, 1, 1}));
  v1::PreviewRows& rows = *preview.header.add_packed();
  for (const std::uint64_t begin : {0, 12}) rows.add_begins(begin);
  for (const std::int64_t extent : {1, 1 << 30}) rows.add_shapes(extent);
  EXPECT_EQ(pixel(make_grid(preview).picture, 600, 32), kEmpty);
  preview.header.mutable_packed(0)->clear_shapes();
  EXPECT_THROW(make_grid(preview), Failure);
}

}  // namespace
}  // namespace spdld::ctl

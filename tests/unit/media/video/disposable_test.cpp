// SPDX-License-Identifier: Apache-2.0
#include "media/video/disposable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/media/video/clip_maker.h"

namespace spdld::media::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::vector<int>& values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

CodecParameters codec(const std::string& name, const Bytes& extradata = {}) {
  CodecParameters made;
  made.codec = name;
  made.extradata = extradata;
  return made;
}

// Units with lengths of one byte.
CodecParameters h264() { return codec("h264", bytes_of({1, 0, 0, 0, 0xFC, 0})); }
CodecParameters hevc() {
  Bytes extradata(22);
  extradata[0] = std::byte{1};
  extradata[21] = std::byte{0xFC};
  return codec("hevc", extradata);
}

std::vector<std::uint8_t> flags(const CodecParameters& parameters,
                                const std::vector<std::vector<int>>& packets) {
  Bytes bytes;
  std::vector<MediaPacket> made;
  for (const std::vector<int>& packet : packets) {
    const Bytes more = bytes_of(packet);
    made.push_back({.offset = bytes.size(), .size_bytes = static_cast<std::uint32_t>(more.size())});
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  Disposable disposable;
  disposable.find(parameters, made, bytes);
  return {disposable.flags().begin(), disposable.flags().end()};
}

TEST(Disposable, IsAnH264PictureWhoseUnitsAllSaySo) {
  // A key frame, a picture that is referred to, one that is not behind a unit of text, and one of
  // whose two fields the second is referred to.
  EXPECT_THAT(
      flags(h264(), {{2, 0x65, 1}, {2, 0x41, 1}, {2, 0x06, 9, 2, 0x01, 1}, {1, 0x01, 1, 0x41}}),
      ElementsAre(0, 0, 1, 0));
}

TEST(Disposable, IsAnHevcPictureOfTheHighestLayerAlone) {
  // TRAIL_R, TRAIL_N of the lower and TSA_N of the higher layer.
  EXPECT_THAT(flags(hevc(), {{2, 1 << 1, 1}, {2, 0, 1}, {2, 2 << 1, 2}}), ElementsAre(0, 0, 1));
  EXPECT_THAT(flags(hevc(), {{2, 1 << 1, 1}, {2, 0, 1}}), ElementsAre(0, 1));
}

TEST(Disposable, IsNothingThatCannotBeUnderstood) {
  const std::vector<std::vector<int>> packets{{9, 0x01, 1}, {0}, {2, 0x01}, {}, {2, 0x06, 1}};
  EXPECT_THAT(flags(h264(), packets), Each(0));
  EXPECT_THAT(flags(codec("vp9"), {{2, 0x01, 1}}), Each(0));
  CodecParameters by_start_codes = h264();
  by_start_codes.extradata = bytes_of({0, 0, 0, 1, 0x67});
  EXPECT_THAT(flags(by_start_codes, {{2, 0x01, 1}}), Each(0));
}

TEST(Disposable, IsNothingBeyondTheBytes) {
  const std::vector<MediaPacket> packets{{.offset = 2, .size_bytes = 3}};
  Disposable disposable;
  disposable.find(h264(), packets, bytes_of({0, 0, 2, 1}));
  EXPECT_THAT(disposable.flags(), Each(0));
}

TEST(Disposable, IsEachPictureBetweenReferencesOfAnEncoder) {
  const MediaMaker maker;
  const Bytes file = maker.make(moving_pictures(20) +
                                    "-c:v libx264 -threads 1 -pix_fmt yuv420p -bf 1 -b_strategy 0 "
                                    "-x264-params keyint=100:scenecut=0",
                                "a.mp4");
  ClipMaker clips(file);
  Disposable disposable;
  disposable.find(*clips.stream().codec, clips.packets(), file);
  ASSERT_EQ(disposable.flags().size(), 20U);
  // 0, then 2 before 1, 4 before 3, ...; the last one is referred to, or not.
  for (std::size_t i = 1; i + 1 < 20; ++i)
    EXPECT_EQ(disposable.flags()[i], i % 2 == 0 ? 1 : 0) << i;
}

}  // namespace
}  // namespace spdld::media::test

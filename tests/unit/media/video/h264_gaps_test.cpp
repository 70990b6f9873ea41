// SPDX-License-Identifier: Apache-2.0
#include "media/video/h264_gaps.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/media/video/clip_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

// Extradata with one set of parameters: of the baseline profile, up to the flag and beyond.
Bytes baseline(unsigned char first, std::vector<unsigned char> rest) {
  Bytes bytes;
  const std::size_t size = 5 + rest.size();
  for (const unsigned byte : {1U, 66U, 0U, 30U, 0xFFU, 0xE1U, 0U, static_cast<unsigned>(size),
                              0x67U, 66U, 0U, 30U, static_cast<unsigned>(first)})
    bytes.push_back(static_cast<std::byte>(byte));
  for (const unsigned char byte : rest) bytes.push_back(static_cast<std::byte>(byte));
  return bytes;
}

TEST(H264Gaps, AreForbiddenInWhatX264Writes) {
  const MediaMaker maker;
  for (const std::string options : {"-profile:v baseline", "-profile:v high",
                                    "-x264-params cqm=jvt", "-pix_fmt yuv444p -x264-params cqm=jvt",
                                    "-x264-params interlaced=1", "-pix_fmt yuv422p10le"}) {
    const Bytes file = maker.make(
        moving_pictures(2) + "-c:v libx264 -threads 1 -pix_fmt yuv420p " + options, "a.mp4");
    ClipMaker clips(file);
    EXPECT_EQ(h264_allows_gaps(clips.stream().codec->extradata), false) << options;
  }
}

TEST(H264Gaps, AreAllowedWhereTheFlagSaysSo) {
  // An order of type 2, one reference, and the flag.
  EXPECT_EQ(h264_allows_gaps(baseline(0xDA, {0x00, 0x00})), false);
  EXPECT_EQ(h264_allows_gaps(baseline(0xDA, {0x80, 0x00})), true);
}

TEST(H264Gaps, AreUnknownWhereParametersAreCutOff) {
  EXPECT_EQ(h264_allows_gaps({}), std::nullopt);
  EXPECT_EQ(h264_allows_gaps(baseline(0xDA, {})), std::nullopt);
  const Bytes whole = baseline(0xDA, {0x80, 0x00});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(h264_allows_gaps(std::span(whole).first(size)), std::nullopt) << size;
  // By start codes, as in transport streams.
  const Bytes started{std::byte{0},    std::byte{0},  std::byte{0}, std::byte{1},
                      std::byte{0x67}, std::byte{66}, std::byte{0}};
  EXPECT_EQ(h264_allows_gaps(started), std::nullopt);
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
// The bytes and packets that a clip is fetched with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/tar_writer.h"
#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using test::ToyMedia;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sampling = ClipsSpec::Sampling;
using ClipBytesTest = ClipsFixture;

// By what the file says of its packets, and no table.
struct Needed {
  std::vector<std::int64_t> times;
  Needed(const MediaStream& stream, const std::vector<std::int64_t>& frames) {
    const auto number = [&](std::int64_t pts) {
      return std::find_if(stream.packets.begin(), stream.packets.end(),
                          [pts](const MediaPacket& packet) { return packet.pts == pts; }) -
             stream.packets.begin();
    };
    std::ptrdiff_t end = 0;
    for (const std::int64_t frame : frames) end = std::max(end, number(frame) + 1);
    std::ptrdiff_t begin = number(frames.front());
    const auto is_begin = [&](const MediaPacket& packet) {
      return packet.key && packet.pts <= frames.front();
    };
    while (!is_begin(stream.packets[static_cast<std::size_t>(begin)])) --begin;
    for (; begin < end; ++begin)
      times.push_back(stream.packets[static_cast<std::size_t>(begin)].pts);
  }
};

TEST_F(ClipBytesTest, BringsOnlyWhatAClipIsDecodedFrom) {
  for (const bool b : {false, true}) {
    for (const bool open_groups : {false, true}) {
      ToyMedia toy;
      const int video = toy.add_video();
      toy.put_frames(video, 900, 12, b, open_groups);
      put("a.toy", toy);
      const auto source = open({.frames = 5, .stride = 3, .hop_frames = 7});
      const auto part = source->open_part(0, 0);
      const MediaFile file = prober_.probe(**part, {}).value();
      for (std::uint64_t item = 0; item < source->size(); ++item) {
        const MediaClip& clip = fetch(*source, item);
        EXPECT_EQ(times_of(clip), Needed(file.streams[0], clip.frames).times) << item;
        expect_own_bytes(clip);
        std::size_t bytes = 0;
        for (const MediaPacket& packet : clip.packets) bytes += packet.size_bytes;
        EXPECT_EQ(item_.part(0).size(), bytes);
      }
    }
  }
}

TEST_F(ClipBytesTest, BeginsSoFarBackThatFramesThatAreRefreshedGraduallyAreWhole) {
  ToyMedia toy;
  const int video = toy.add_video();
  toy.stream(video).media.info.refreshes_gradually = true;
  toy.put_frames(video, 900, 12);
  put("a.toy", toy);
  const auto source = open({.frames = 5, .hop_frames = 7});
  for (std::uint64_t item = 0; item < source->size(); ++item) {
    const MediaClip& clip = fetch(*source, item);
    expect_own_bytes(clip);
    EXPECT_TRUE(clip.stream.refreshes_gradually);
    // A picture of 320 x 240 is whole after 320 / 16 + 16 pictures.
    const std::int64_t whole = std::max<std::int64_t>(clip.frames.front() - 36, 0);
    EXPECT_EQ(times_of(clip).front(), whole / 12 * 12);
    EXPECT_EQ(times_of(clip).back(), clip.frames.back());
  }
}

TEST_F(ClipBytesTest, FindsFramesWhoseTimesJumpBack) {
  ToyMedia toy;
  const int video = toy.add_video();
  for (const std::int64_t begin : {1000, 0, 2000}) {
    for (std::int64_t i = 0; i < 500; ++i)
      toy.put(video, {.size_bytes = 20, .key = i % 20 == 0, .pts = begin + i, .dts = begin + i});
  }
  put("a.toy", toy);
  const auto source = open({.frames = 4, .hop_frames = 50});
  for (std::uint64_t item = 0; item < source->size(); ++item) {
    const MediaClip& clip = fetch(*source, item);
    expect_own_bytes(clip);
    const auto times = times_of(clip);
    for (const std::int64_t frame : clip.frames)
      EXPECT_TRUE(std::find(times.begin(), times.end(), frame) != times.end()) << frame;
    EXPECT_TRUE(clip.packets.front().key);
  }
}

TEST_F(ClipBytesTest, StacksTheClipsOfAFile) {
  put_video("a.toy", 1000, 10);
  ClipsSpec spec{.frames = 4, .sampling = Sampling::kUniform, .per_file = 3, .stack = true};
  const auto source = open(spec);
  ASSERT_EQ(source->size(), 1u);
  EXPECT_EQ(source->fields()[0].clip->repeats, 3);
  EXPECT_EQ(source->fields().size(), 1u) << "it begins at several times";
  const MediaClip& clip = fetch(*source, 0);
  EXPECT_EQ(clip.repeats, 3u);
  EXPECT_THAT(clip.frames, ElementsAre(0, 1, 2, 3, 498, 499, 500, 501, 996, 997, 998, 999));
  expect_own_bytes(clip);
  // Of the groups between them there is no packet.
  EXPECT_EQ(clip.packets.size(), 4u + 12u + 10u);
  std::vector<std::int64_t> behind_gaps;
  for (const MediaPacket& packet : clip.packets) {
    if (packet.gap) behind_gaps.push_back(packet.pts);
  }
  EXPECT_THAT(behind_gaps, ElementsAre(490, 990));
}

TEST_F(ClipBytesTest, ReadsStackedClipsOfALongFileApart) {
  ToyMedia toy;
  const int video = toy.add_video();
  toy.put_frames(video, 1000, 10, false, false, 9000);
  put("a.toy", toy);
  TarWriter tar;
  tar.file("a.txt", "a caption").file("a.toy", toy.bytes()).file("b.txt", "x").file("b.toy", "x");
  dir_.file("a.tar", tar.archive());
  WebdatasetSpec shards;
  shards.shards = {dir_.path("a.tar")};
  shards.parts = {{.field = "video", .suffixes = {"toy"}},
                  {.field = "caption", .suffixes = {"txt"}}};
  const ClipsSpec spec{
      .field = "video", .frames = 4, .sampling = Sampling::kUniform, .per_file = 3, .stack = true};
  for (const bool of_shards : {false, true}) {
    const auto source = of_shards ? try_open({.items = shards, .clips = spec})
                                  : try_open({.items = files(), .clips = spec});
    ASSERT_TRUE(source) << source.error().message();
    std::vector<PartRequest> requests{{.part = 0}};
    if (of_shards) requests.push_back({.part = 1});
    ASSERT_TRUE(fetch_and_wait(**source, 0, item_, requests).ok());
    const MediaClip& clip = *item_.clip(0);
    expect_own_bytes(clip);
    std::size_t bytes = 0;
    for (const MediaPacket& packet : clip.packets) bytes += packet.size_bytes;
    EXPECT_EQ(item_.part(0).size(), bytes);
    EXPECT_EQ(item_.parts(), requests.size());
    if (of_shards) {
      EXPECT_EQ(text_of(item_.part(1)), "a caption");
      EXPECT_EQ(item_.clip(1), nullptr);
    }
    // A piece of it, and then another source's item.
    ASSERT_TRUE(
        fetch_and_wait(**source, 0, item_, {{.part = 0, .offset = 1, .size_bytes = 4}}).ok());
    EXPECT_EQ(text_of(item_.part(0)), ":0;0");
  }
  const auto many =
      open({.frames = 4, .sampling = Sampling::kUniform, .per_file = 40, .stack = true});
  const MediaClip& clip = fetch(*many, 0);
  EXPECT_EQ(item_.ranges().size(), 16u);
  expect_own_bytes(clip);
}

TEST_F(ClipBytesTest, HoldsAPacketOnceThatSeveralStackedClipsNeed) {
  put_video("a.toy", 30, 30);
  const auto source =
      open({.frames = 4, .sampling = Sampling::kUniform, .per_file = 5, .stack = true});
  const MediaClip& clip = fetch(*source, 0);
  EXPECT_EQ(clip.packets.size(), 30u);
  EXPECT_EQ(clip.frames.size(), 20u);
}

TEST_F(ClipBytesTest, GivesNoStampForRandomClips) {
  put_video("a.toy", 500);
  const auto source = open({.frames = 4, .sampling = Sampling::kRandom});
  item_.revision.asked = true;
  ASSERT_TRUE(fetch_and_wait(*source, 0, item_).ok());
  EXPECT_FALSE(item_.revision.stamp);
  EXPECT_FALSE(item_.revision.unchanged);
}

TEST_F(ClipBytesTest, NamesAFileThatHasChanged) {
  put_video("a.toy", 100);
  const auto source = open({.frames = 4});
  put_video("a.toy", 101);
  const Status status = fetch_and_wait(*source, 3, item_);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("a.toy has changed since it was indexed"));
}

TEST_F(ClipBytesTest, LaysPartsOfAShardOutWithTheirClips) {
  TarWriter tar;
  for (int i = 0; i < 3; ++i) {
    ToyMedia toy;
    const int video = toy.add_video();
    toy.put_frames(video, 100 + i, 10);
    tar.file(std::to_string(i) + ".toy", toy.bytes())
        .file(std::to_string(i) + ".txt", "caption " + std::to_string(i));
  }
  dir_.file("a.tar", tar.archive());
  WebdatasetSpec shards;
  shards.shards = {dir_.path("a.tar")};
  shards.parts = {{.field = "caption", .suffixes = {"txt"}},
                  {.field = "video", .suffixes = {"toy"}}};
  const auto source =
      try_open({.items = shards, .clips = ClipsSpec{.field = "video", .frames = 50}});
  ASSERT_TRUE(source) << source.error().message();
  ASSERT_EQ((*source)->size(), 6u);
  ASSERT_TRUE(fetch_and_wait(**source, 3, item_, {{.part = 0}, {.part = 1}}).ok());
  EXPECT_EQ(text_of(item_.part(0)), "caption 1");
  EXPECT_EQ(item_.clip(0), nullptr);
  ASSERT_NE(item_.clip(1), nullptr);
  EXPECT_EQ(text_of(item_.part(1)).substr(0, 5), "0:50;");
  EXPECT_EQ(item_.clip(1)->packets.size(), 50u);
}

}  // namespace
}  // namespace spdld::source

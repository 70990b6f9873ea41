// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tar_writer.h"
#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using test::ToyMedia;
using ::testing::HasSubstr;
using ::testing::Not;
using Unit = ClipsSpec::Unit;

class ClipPartTest : public ClipsFixture {
 protected:
  static std::string video() {
    ToyMedia toy;
    toy.put_frames(toy.add_video(), 8, 4);
    return toy.bytes();
  }
  static std::string sound() {
    ToyMedia toy;
    toy.put_sound(toy.add_sound(100), 10);
    return toy.bytes();
  }
  // Of a shard whose sample 1 has these parts.
  SourceSpec shard(std::vector<WebdatasetSpec::Part> parts, ClipsSpec clips) {
    TarWriter tar;
    for (const WebdatasetSpec::Part& part : parts) {
      const std::string& suffix = part.suffixes.front();
      tar.file("1." + suffix, suffix == "mp4" || suffix == "toy" ? video()
                              : suffix == "flac"                 ? sound()
                                                                 : "text");
    }
    dir_.file("data/s.tar", tar.archive());
    WebdatasetSpec items;
    items.shards = {dir_.path("data/s.tar")};
    items.parts = std::move(parts);
    return {.items = items, .clips = std::move(clips)};
  }
  std::unique_ptr<Source> opened(const SourceSpec& spec) {
    auto source = try_open(spec);
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }
  // The name of the part that clips are cut from.
  std::string part_of(const SourceSpec& spec) {
    const auto source = opened(spec);
    if (source == nullptr) return "";
    for (const SourceField& field : source->fields()) {
      if (field.clip) return field.name;
    }
    return "none";
  }
  std::string refusal_of(const SourceSpec& spec) {
    const auto source = try_open(spec);
    EXPECT_FALSE(source);
    return source ? "" : source.error().message();
  }
  const ClipsSpec clips_{.frames = 4};
  const ClipsSpec windows_{.unit = Unit::kSeconds, .seconds = 1, .end = ClipsSpec::End::kPad};
};

TEST_F(ClipPartTest, ClipsAreOfThePartWithAVideoSuffix) {
  EXPECT_EQ(part_of(shard({{"audio", {"flac"}}, {"video", {"mp4"}}}, clips_)), "video");
  EXPECT_EQ(part_of(shard({{"a", {"jpg", "png"}}, {"b", {"mp4", "webm"}}}, clips_)), "b");
}

TEST_F(ClipPartTest, WindowsAreOfThePartWithASoundSuffix) {
  EXPECT_EQ(part_of(shard({{"image", {"jpg"}}, {"sound", {"flac"}}}, windows_)), "sound");
}

TEST_F(ClipPartTest, TheOnlyPartNeedsNoSuffix) {
  EXPECT_EQ(part_of(shard({{"it", {"toy"}}}, clips_)), "it");
}

TEST_F(ClipPartTest, SeveralPartsThatFitAreRefused) {
  EXPECT_THAT(
      refusal_of(shard({{"audio", {"flac"}}, {"text", {"txt"}}, {"video", {"mp4"}}}, windows_)),
      HasSubstr("source.windows.field: by their suffixes, each of the parts 'audio', 'video' "
                "may hold sound; write 'field: NAME'"));
}

TEST_F(ClipPartTest, SeveralPartsOfWhichNoneFitsAreRefused) {
  EXPECT_THAT(refusal_of(shard({{"audio", {"flac"}}, {"video", {"toy"}}}, clips_)),
              HasSubstr("source.clips.field: none of the source's parts ('audio', 'video') has a "
                        "suffix that tells of video; write 'field: NAME'"));
  ClipsSpec named = clips_;
  named.field = "video";
  EXPECT_EQ(part_of(shard({{"audio", {"flac"}}, {"video", {"toy"}}}, named)), "video");
  named.field = "vedio";
  EXPECT_THAT(refusal_of(shard({{"audio", {"flac"}}, {"video", {"toy"}}}, named)),
              HasSubstr("the source has no part 'vedio'; it has 'audio', 'video'"));
}

TEST_F(ClipPartTest, CompanionsAndSelectionsAreToldApartBySuffix) {
  dir_.file("data/images/1.JPG", "text");
  dir_.file("data/videos/1.mp4", video());
  FilesSpec images = files();
  images.pattern = "images/*";
  images.field = "image";
  images.companions = {{.field = "video", .pattern = "videos/${stem}.mp4"}};
  SourceSpec spec{.items = images, .select = SelectSpec{}, .clips = clips_};
  spec.select->take = 1;
  EXPECT_EQ(part_of(spec), "video");
}

TEST_F(ClipPartTest, ColumnsOfATableAreToldApartByTheirFiles) {
  dir_.file("data/1.jpg", "text");
  dir_.file("data/1.mp4", video());
  dir_.file("data/t.csv", "cover,film\n1.jpg,1.mp4\n");
  TableSpec table;
  table.file = dir_.path("data/t.csv");
  table.uris = {{.field = "cover", .column = "cover"}, {.field = "film", .column = "film"}};
  EXPECT_EQ(part_of({.items = table, .clips = clips_}), "film");
}

TEST_F(ClipPartTest, FilesLeftOutOfSeveralPartsNameTheField) {
  ClipsSpec clips = clips_;
  clips.field = "audio";
  EXPECT_THAT(refusal_of(shard({{"audio", {"flac"}}, {"video", {"mp4"}}}, clips)),
              HasSubstr("none of the 1 file of the part 'audio' has one: 1 without video, such as "
                        "s.tar/1; 'field:' takes another part, of which there are 'video'"));
  EXPECT_THAT(refusal_of(shard({{"video", {"mp4"}}}, windows_)), Not(HasSubstr("field")));
}

TEST_F(ClipPartTest, AFaultOfOneMemberDoesNotBlameItsShard) {
  ClipsSpec windows = windows_;
  windows.field = "image";
  const SourceSpec spec = shard({{"image", {"jpg"}}, {"sound", {"flac"}}}, windows);
  EXPECT_THAT(refusal_of(spec),
              HasSubstr("1 not readable as media, such as s.tar/1 (it is no toy)"));
}

}  // namespace
}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#include "source/clips_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/tar_writer.h"
#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::ToyMedia;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sampling = ClipsSpec::Sampling;
using ClipsSourceTest = ClipsFixture;

TEST_F(ClipsSourceTest, CutsEachVideoIntoClips) {
  put_video("a.toy", 70);
  put_video("b.toy", 15);
  put_video("c.toy", 16);
  const auto source = open({.frames = 8, .stride = 2});
  EXPECT_THAT(uris(*source), ElementsAre("a.toy@0s", "a.toy@0.64s", "a.toy@1.28s", "a.toy@1.92s",
                                         "b.toy@0s", "c.toy@0s"));
  const std::vector<SourceField>& fields = source->fields();
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].name, "video");
  EXPECT_EQ(
      fields[0].clip,
      (ClipShape{.frames = 8, .width = 320, .height = 240, .max_width = 320, .max_height = 240}));
  EXPECT_EQ(fields[1].name, "start");
  EXPECT_EQ(std::get<double>(source->value(2, fields[1].index)), 1.28);
  const MediaClip& clip = fetch(*source, 1);
  EXPECT_THAT(clip.frames, ElementsAre(16, 18, 20, 22, 24, 26, 28, 30));
  EXPECT_EQ(clip.repeats, 1u);
}

TEST_F(ClipsSourceTest, TellsTheUprightSizeThatAllPicturesHave) {
  put_picture("a.toy", 320, 240);
  put_picture("b.toy", 240, 320, 90);
  put_picture("c.toy", 240, 320, 270);
  put_picture("d.toy", 320, 240, 180);
  const ClipShape shape = *open({.frames = 4})->fields()[0].clip;
  EXPECT_EQ(shape.width, 320);
  EXPECT_EQ(shape.height, 240);
  EXPECT_EQ(shape.sizes, "");
}

TEST_F(ClipsSourceTest, NamesTwoFilesWhosePicturesDifferInSize) {
  put_picture("a.toy", 320, 240);
  put_picture("b.toy", 320, 240, 90);
  put_picture("c.toy", 320, 240);
  put_picture("d.toy", 640, 180);
  const ClipShape shape = *open({.frames = 4})->fields()[0].clip;
  EXPECT_EQ(shape.width, 0);
  EXPECT_EQ(shape.height, 0);
  EXPECT_EQ(shape.sizes, "a.toy has 320x240 pixels, b.toy 240x320");
  EXPECT_EQ(shape.max_width, 640);
  EXPECT_EQ(shape.max_height, 320);
}

TEST_F(ClipsSourceTest, TakesTheSizeOfTheStreamThatIsChosen) {
  for (const std::string name : {"a.toy", "b.toy"}) {
    ToyMedia toy;
    toy.put_frames(toy.add_video(320, 240), 8, 4);
    toy.put_frames(name == "a.toy" ? toy.add_video(96, 64) : toy.add_video(64, 96), 8, 4);
    put(name, toy);
  }
  EXPECT_EQ(open({.frames = 4})->fields()[0].clip->width, 320);
  EXPECT_EQ(open({.stream = "1", .frames = 4})->fields()[0].clip->width, 0);
}

TEST_F(ClipsSourceTest, LeavesOutOfTheSizeAFileWithoutClips) {
  put_picture("a.toy", 320, 240);
  ToyMedia brief;
  brief.put_frames(brief.add_video(96, 64), 3, 3);
  put("b.toy", brief);
  EXPECT_EQ(open({.frames = 4})->fields()[0].clip->width, 320);
}

TEST_F(ClipsSourceTest, HasAnotherDigestWhenPicturesChangeSizeAlone) {
  put_picture("a.toy", 320, 240);
  const auto before = open({.frames = 4});
  put_picture("a.toy", 240, 320);
  const auto after = open({.frames = 4});
  EXPECT_NE(before->values_digest(), after->values_digest());
}

TEST_F(ClipsSourceTest, FillsUpAClipThatRunsOverTheEnd) {
  put_video("a.toy", 10);
  ClipsSpec spec{.frames = 4, .stride = 2, .end = ClipsSpec::End::kPad};
  auto source = open(spec);
  ASSERT_EQ(source->size(), 2u);
  EXPECT_THAT(fetch(*source, 1).frames, ElementsAre(8, 8, 8, 8));
  spec.hop_frames = 6;
  source = open(spec);
  EXPECT_THAT(fetch(*source, 1).frames, ElementsAre(6, 8, 8, 8));
  spec.end = ClipsSpec::End::kLoop;
  source = open(spec);
  EXPECT_THAT(fetch(*source, 1).frames, ElementsAre(6, 8, 6, 8));
  spec.end = ClipsSpec::End::kDrop;
  EXPECT_EQ(open(spec)->size(), 1u);
}

TEST_F(ClipsSourceTest, DrawsRandomClipsFromEpochAndFile) {
  for (int i = 0; i < 20; ++i) put_video("v" + std::to_string(i) + ".toy", 500);
  const ClipsSpec spec{.frames = 4, .sampling = Sampling::kRandom, .per_file = 2};
  const auto source = open(spec);
  ASSERT_EQ(source->size(), 40u);
  EXPECT_THAT(uris(*source), ::testing::Contains("v0.toy#1"));
  const auto begins = [&](std::uint64_t epoch) {
    std::vector<std::int64_t> begins;
    for (std::uint64_t item = 0; item < source->size(); ++item)
      begins.push_back(fetch(*source, item, 0, epoch).frames.front());
    return begins;
  };
  const auto first = begins(1);
  EXPECT_EQ(begins(1), first);
  EXPECT_NE(begins(2), first);
  EXPECT_GT(std::set<std::int64_t>(first.begin(), first.end()).size(), 30u);
  // Another file more does not change the others' draws.
  put_video("a.toy", 500);
  const auto more = open(spec);
  EXPECT_EQ(fetch(*more, 2, 0, 1).frames.front(), first[0]);
}

TEST_F(ClipsSourceTest, DrawsTheSameOnEachThread) {
  for (int i = 0; i < 10; ++i) put_video("v" + std::to_string(i) + ".toy", 500);
  const auto source = open({.frames = 4, .sampling = Sampling::kRandom});
  std::vector<std::vector<std::int64_t>> seen(4);
  {
    std::vector<std::jthread> threads;
    for (std::vector<std::int64_t>& begins : seen) {
      threads.emplace_back([&source, &begins] {
        FetchedItem item;
        for (std::uint64_t i = 0; i < 10 * source->size(); ++i) {
          item.epoch_key = i / source->size();
          EXPECT_TRUE(fetch_and_wait(*source, i % source->size(), item).ok());
          begins.push_back(item.clip(0)->frames.front());
        }
      });
    }
  }
  for (const auto& begins : seen) EXPECT_EQ(begins, seen[0]);
}

TEST_F(ClipsSourceTest, BeginsAtGivenTimesAndKeyFrames) {
  put_video("a.toy", 100, 30);
  ClipsSpec spec{.frames = 2, .sampling = Sampling::kTimestamps};
  spec.times = {0, 1.28, 1.29, 3.96, 100};
  EXPECT_THAT(uris(*open(spec)), ElementsAre("a.toy@0s", "a.toy@1.28s", "a.toy@1.28s"));
  spec.end = ClipsSpec::End::kPad;
  EXPECT_EQ(open(spec)->size(), 4u) << "the last frame is at 3.96 s";
  EXPECT_THAT(uris(*open({.frames = 2, .sampling = Sampling::kKeyframes})),
              ElementsAre("a.toy@0s", "a.toy@1.2s", "a.toy@2.4s", "a.toy@3.6s"));
}

TEST_F(ClipsSourceTest, BeginsNothingAtTimesOfThePipelineThatAFileLacks) {
  ToyMedia toy;
  toy.put_sound(toy.add_sound(8000), 10);
  put("a.toy", toy);
  put("b.toy", toy);
  ClipsSpec spec{.unit = ClipsSpec::Unit::kSeconds,
                 .seconds = 0.5,
                 .sampling = Sampling::kTimestamps,
                 .times = {999999, 0.25, 1.1},
                 .end = ClipsSpec::End::kPad};
  EXPECT_THAT(uris(*open(spec)), ElementsAre("a.toy@0.25s", "b.toy@0.25s"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0],
            "source.windows: 2 of 2 files have some, 2 in all: 2 with timestamps before their "
            "begin or behind their end, where nothing begins, such as a.toy (999999 s)");
  spec.times = {1.1};
  EXPECT_EQ(refusal(spec),
            "source.windows: none of the 2 files has one: 2 with timestamps before their begin or "
            "behind their end, where nothing begins, such as a.toy (1.1 s)");
  spec.times = {0.75};
  EXPECT_EQ(open(spec)->size(), 2u);
  EXPECT_TRUE(warnings_.empty());
  spec.end = ClipsSpec::End::kDrop;
  EXPECT_THAT(refusal(spec), HasSubstr("2 too short for one ('end: pad'"));
}

TEST_F(ClipsSourceTest, TakesTimesFromTheListing) {
  put_video("a.toy", 100);
  put_video("b.toy", 100);
  dir_.file("t.jsonl",
            "{\"uri\": \"a.toy\", \"at\": [0.4, 2]}\n{\"uri\": \"b.toy\", \"at\": []}\n"
            "{\"uri\": \"b.toy\", \"at\": [1]}\n");
  TableSpec table;
  table.file = dir_.path("t.jsonl");
  table.root = dir_.path("data");
  table.uris = {{.field = "video", .column = "uri"}};
  table.values = {{.field = "at", .column = "at", .type = ValueType::kFloat64List}};
  ClipsSpec spec{.frames = 2, .sampling = Sampling::kTimestamps, .times_field = "at"};
  const auto source = try_open({.items = table, .clips = spec});
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_THAT(uris(**source), ElementsAre("a.toy@0.4s", "a.toy@2s", "b.toy@1s"));
  EXPECT_EQ(prober_.probed, 2);
  spec.times_field = "when";
  EXPECT_THAT(try_open({.items = table, .clips = spec}).error().message(),
              HasSubstr("no value 'when'"));
}

TEST_F(ClipsSourceTest, SelectsFilesBeforeTheyAreCut) {
  put_video("a.toy", 100);
  put_video("b.toy", 100);
  const auto source = try_open(
      {.items = files(), .select = SelectSpec{.skip = 1}, .clips = ClipsSpec{.frames = 50}});
  ASSERT_TRUE(source);
  EXPECT_THAT(uris(**source), ElementsAre("b.toy@0s", "b.toy@2s"));
  EXPECT_EQ(prober_.probed, 1);
}

TEST_F(ClipsSourceTest, LeavesOutBrokenFilesAndSaysSo) {
  put_video("a.toy", 100);
  dir_.file("data/b.toy", "text");
  dir_.file("data/c.toy", "text");
  put_video("short.toy", 3);
  ToyMedia sound;
  sound.put_sound(sound.add_sound(100), 10);
  put("sound.toy", sound);
  ClipsSpec spec{.frames = 50};
  EXPECT_EQ(open(spec)->size(), 2u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("source.clips: 1 of 5 files have some, 2 in all"));
  EXPECT_THAT(warnings_[0], HasSubstr("2 not readable as media, such as b.toy ("));
  EXPECT_THAT(warnings_[0], HasSubstr("1 without video, such as sound.toy"));
  EXPECT_THAT(warnings_[0], HasSubstr("1 too short for one"));
  spec.broken = ClipsSpec::Broken::kError;
  EXPECT_THAT(refusal(spec), HasSubstr("is no toy"));
  dir_.remove("data/b.toy");
  dir_.remove("data/c.toy");
  EXPECT_THAT(refusal(spec), HasSubstr("sound.toy: it is without video; mend or remove it"));
  dir_.remove("data/sound.toy");
  EXPECT_EQ(open(spec)->size(), 2u) << "a short file is none that is broken";
  dir_.remove("data/a.toy");
  EXPECT_THAT(refusal(spec), HasSubstr("none of the 1 file has one"));
}

TEST_F(ClipsSourceTest, LeavesOutFilesTooLargeToBeReadWhole) {
  const auto video = [](StreamInfo::Access access, std::int64_t frames) {
    ToyMedia toy;
    const int stream = toy.add_video();
    toy.stream(stream).media.info.access = access;
    toy.put_frames(stream, frames, 4, false, false, 1000);
    return toy;
  };
  using Access = StreamInfo::Access;
  put("large.toy", video(Access::kDemux, 40));
  put("pieces.toy", video(Access::kPackets, 40));
  put("small.toy", video(Access::kDemux, 4));
  max_file_bytes_ = 20'000;
  ClipsSpec spec{.frames = 4, .sampling = Sampling::kUniform};
  EXPECT_THAT(uris(*open(spec)), ElementsAre("pieces.toy@0.72s", "small.toy@0s"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              HasSubstr("1 that can only be read whole and have more than the 20000 bytes that an "
                        "item may have (remux such a file to mp4 or mkv), such as large.toy"));
  spec.broken = ClipsSpec::Broken::kError;
  EXPECT_THAT(refusal(spec), HasSubstr("large.toy: it can only be read whole and has "));
  // Of a shard, its members' sizes count.
  test::TarWriter tar;
  tar.file("1.toy", video(Access::kDemux, 4).bytes())
      .file("2.toy", video(Access::kDemux, 40).bytes())
      .file("3.toy", video(Access::kDemux, 4).bytes());
  dir_.file("s.tar", tar.archive());
  WebdatasetSpec shards;
  shards.shards = {dir_.path("s.tar")};
  shards.parts = {{.field = "video", .suffixes = {"toy"}}};
  spec.broken = ClipsSpec::Broken::kSkip;
  const auto source = try_open({.items = shards, .clips = spec});
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_THAT(uris(**source), ElementsAre("s.tar/1@0s", "s.tar/3@0s"));
}

TEST_F(ClipsSourceTest, OpensWhatWasAppliedAsItWas) {
  put_video("a.toy", 100);
  put_video("b.toy", 100);
  KeptDatasets kept(dir_.path("state"));
  const SourceSpec spec{.items = files(), .clips = ClipsSpec{.frames = 20}};
  const auto first = try_open(spec, &kept);
  ASSERT_TRUE(first) << first.error().message();
  const std::string id = (*first)->dataset();
  EXPECT_THAT(id, HasSubstr("+media-"));
  const int probed = prober_.probed;
  KeptDatasets later(dir_.path("state"));
  auto again = try_open(spec, &later, id);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ((*again)->listing_digest(), (*first)->listing_digest());
  EXPECT_EQ((*again)->values_digest(), (*first)->values_digest());
  EXPECT_EQ((*again)->dataset(), id);
  EXPECT_EQ(prober_.probed, probed);
  // Lost, it is made again as long as the files are the same.
  dir_.remove("state/media");
  KeptDatasets lost(dir_.path("state"));
  again = try_open(spec, &lost, id);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("indexed again, and are the same")));
  dir_.remove("state/media");
  put_video("b.toy", 99);
  KeptDatasets changed(dir_.path("state"));
  again = try_open(spec, &changed, id);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kDataLoss);
  EXPECT_THAT(again.error().message(), HasSubstr("the media files are others by now"));
}

TEST_F(ClipsSourceTest, SaysThatNothingReadsMedia) {
  put_video("a.toy", 100);
  SourceOptions options(io_);
  const auto source =
      open_source({.items = files(), .clips = ClipsSpec{.frames = 4}}, std::move(options));
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code(), Code::kUnimplemented);
}

TEST_F(ClipsSourceTest, RefusesFieldsThatAreNotThereOrAreThereTwice) {
  put_video("a.toy", 100);
  EXPECT_EQ(refusal({.field = "film"}),
            "source.clips.field: the source has no part 'film'; it has 'video'");
  EXPECT_THAT(refusal({.audio = "video"}), HasSubstr("there is a field 'video' already"));
}

TEST_F(ClipsSourceTest, RefusesMoreClipsThanItemsMayBe) {
  put_video("a.toy", 100);
  const auto refusal = [this](const ClipsSpec& clips) {
    SourceOptions options(io_);
    options.prober = &prober_;
    options.max_items = 10;
    const auto source = open_source({.items = files(), .clips = clips}, std::move(options));
    if (source) return std::string();
    EXPECT_EQ(source.error().code(), Code::kResourceExhausted);
    return source.error().message();
  };
  const std::string more = "source.clips: there are more than the 10 items that a dataset may have";
  EXPECT_EQ(refusal({.frames = 4, .hop_frames = 1}), more + ": let them lie further apart, 'hop'");
  ClipsSpec uniform{.frames = 4, .sampling = ClipsSpec::Sampling::kUniform};
  uniform.per_file = 2'000'000'000;
  EXPECT_EQ(refusal(uniform), more + ": ask for fewer of each file, 'per_file'");
}

TEST_F(ClipsSourceTest, AsksForMemoryBeforeAnIndexOrItsClipsTakeIt) {
  put_video("a.toy", 100);
  put_video("b.toy", 100);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ClipsSpec spec{.frames = 4, .sampling = ClipsSpec::Sampling::kTimestamps};
  spec.times = std::vector<double>(1, 1.0);
  const auto refusal = [&](std::uint64_t bytes) {
    SourceOptions options(io_);
    options.prober = &prober_;
    options.memory = std::make_shared<ListingMemory>(bytes, TrustedUsers());
    options.reader.uid = 100'002;
    const auto source = open_source({.items = files(), .clips = spec}, std::move(options));
    return source ? std::string() : source.error().message();
  };
  const std::string own = "source.clips: its items would take ";
  EXPECT_THAT(refusal(700), ::testing::StartsWith(own)) << "of the index";
  EXPECT_EQ(refusal(20'000), "");
  spec.times = std::vector<double>(10'000, 1.0);
  EXPECT_THAT(refusal(20'000), ::testing::StartsWith(own)) << "of the clips";
  EXPECT_EQ(refusal(1'000'000), "");
}

TEST_F(ClipsSourceTest, ChoosesStreamsByNumberLanguageOrMerit) {
  ToyMedia toy;
  const int small = toy.add_video(10, 10);
  const int large = toy.add_video(100, 100);
  const int english = toy.add_video(50, 50);
  toy.stream(english).media.language = "eng";
  for (const int stream : {small, large, english}) toy.put_frames(stream, 20, 5);
  put("a.toy", toy);
  const auto index_of = [this](const std::string& stream) {
    ClipsSpec spec{.frames = 4};
    spec.stream = stream;
    return fetch(*open(spec), 0).stream.index;
  };
  EXPECT_EQ(index_of("best"), large);
  EXPECT_EQ(index_of("0"), small);
  EXPECT_EQ(index_of("eng"), english);
  ClipsSpec spec{.frames = 4};
  spec.stream = "fra";
  EXPECT_THAT(refusal(spec), HasSubstr("without a video stream in fra"));
  toy.stream(small).media.is_default = true;
  put("a.toy", toy);
  EXPECT_EQ(index_of("best"), small);
}

}  // namespace
}  // namespace spdld::source

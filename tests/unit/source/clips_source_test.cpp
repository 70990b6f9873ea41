// SPDX-License-Identifier: Apache-2.0
#include "source/clips_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "source/kept_listings.h"
#include "source/open_source.h"
#include "tests/conformance/source_suite.h"
#include "tests/support/tar_writer.h"
#include "tests/support/toy_media.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using test::ToyMedia;
using test::ToyProber;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Sampling = ClipsSpec::Sampling;

// Says of any file that a second of sound is in it, which must be taken out of the whole.
class WholeProber final : public MediaProber {
 public:
  Result<MediaFile> probe(FileBytes&, std::stop_token) const override {
    CodecParameters codec;
    codec.codec = "opus";
    codec.sample_rate = 100;
    codec.channels = 1;
    MediaStream stream;
    stream.info.kind = StreamInfo::Kind::kAudio;
    stream.info.access = StreamInfo::Access::kDemux;
    stream.info.time_base = {1, 100};
    stream.info.samples = 100;
    stream.info.codec = std::make_shared<const CodecParameters>(codec);
    MediaFile file;
    file.streams.push_back(std::move(stream));
    return file;
  }
  std::string version() const override { return "whole"; }
};

ClipsSpec one_second() {
  ClipsSpec spec;
  spec.unit = ClipsSpec::Unit::kSeconds;
  spec.seconds = 1;
  return spec;
}

// Files of which each is one window.
class WindowMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    for (const auto& [uri, bytes] : items) dir_->file(uri, bytes);
    FilesSpec files;
    files.root = dir_->path();
    files.pattern = "**";
    files.label = FilesSpec::Label::kParentDir;
    SourceOptions options(io_);
    options.prober = &prober_;
    auto source = open_source({.items = files, .clips = one_second()}, std::move(options));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kNotFound;
  static std::string name(const std::string& uri) { return uri + "@0s"; }
  static std::string file(const std::string& uri) { return uri; }
  void lose(const std::string& uri) { dir_->remove(uri); }

 private:
  WholeProber prober_;
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

// The same as members of a shard.
class ShardWindowMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    TarWriter tar;
    for (const auto& [uri, bytes] : items) {
      const std::string key = uri.substr(0, uri.find('.'));
      tar.file(key + ".cls", uri.substr(0, uri.find('/'))).file(key + ".bin", bytes);
    }
    dir_->file("a.tar", tar.archive());
    WebdatasetSpec shards;
    shards.shards = {dir_->path("a.tar")};
    shards.parts = {{.field = "sound", .suffixes = {"bin"}}};
    shards.labels = {{.field = "label", .suffixes = {"cls"}}};
    shards.classes =
        ClassesSpec{.kind = ClassesSpec::Kind::kList, .names = {"c0", "c1", "c1-", "c2"}};
    SourceOptions options(io_);
    options.prober = &prober_;
    auto source = open_source({.items = shards, .clips = one_second()}, std::move(options));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kDataLoss;
  static std::string name(const std::string& uri) {
    return "a.tar/" + uri.substr(0, uri.find('.')) + "@0s";
  }
  static std::string file(const std::string&) { return "a.tar"; }
  void lose(const std::string&) { dir_->file("a.tar", "another file"); }

 private:
  WholeProber prober_;
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Windows, SourceSuite, WindowMaker);
INSTANTIATE_TYPED_TEST_SUITE_P(ShardWindows, SourceSuite, ShardWindowMaker);

class ClipsSourceTest : public ::testing::Test {
 protected:
  FilesSpec files() const {
    FilesSpec files;
    files.root = dir_.path("data");
    files.pattern = "**";
    files.field = "video";
    return files;
  }
  Result<std::unique_ptr<Source>> try_open(const SourceSpec& spec, KeptListings* kept = nullptr,
                                           const std::string& dataset = {}) {
    SourceOptions options(io_);
    options.prober = &prober_;
    options.kept = kept;
    options.dataset = dataset;
    warnings_.clear();
    options.warnings = &warnings_;
    return open_source(spec, std::move(options));
  }
  std::unique_ptr<Source> open(const ClipsSpec& clips) {
    auto source = try_open({.items = files(), .clips = clips});
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }
  std::string refusal(const ClipsSpec& clips) {
    auto source = try_open({.items = files(), .clips = clips});
    EXPECT_FALSE(source);
    return source ? "" : source.error().message();
  }
  void put(const std::string& name, const ToyMedia& toy) { dir_.file("data/" + name, toy.bytes()); }
  void put_video(const std::string& name, std::int64_t frames, std::int64_t gop = 10,
                 bool b = false, bool open = false) {
    ToyMedia toy;
    const int video = toy.add_video();
    toy.put_frames(video, frames, gop, b, open);
    put(name, toy);
  }

  void put_picture(const std::string& name, int width, int height, int rotation = 0) {
    ToyMedia toy;
    const int video = toy.add_video(width, height);
    toy.stream(video).media.info.rotation = rotation;
    toy.put_frames(video, 8, 4);
    put(name, toy);
  }

  const MediaClip& fetch(Source& source, std::uint64_t item, std::size_t part = 0,
                         std::uint64_t epoch = 0) {
    item_.epoch_key = epoch;
    const Status status = fetch_and_wait(source, item, item_, {{.part = part}});
    EXPECT_TRUE(status.ok()) << status.message();
    const MediaClip* const clip = item_.clip(0);
    EXPECT_NE(clip, nullptr);
    return *clip;
  }
  // Whether the bytes of each packet are that packet's.
  void expect_own_bytes(const MediaClip& clip) const {
    const std::string bytes = text_of(item_.part(0));
    for (const MediaPacket& packet : clip.packets) {
      const std::string name = ToyMedia::name(clip.stream.index, packet.pts);
      ASSERT_LE(packet.offset + packet.size_bytes, bytes.size());
      EXPECT_EQ(bytes.substr(packet.offset, name.size()), name);
    }
  }
  static std::vector<std::int64_t> times_of(const MediaClip& clip) {
    std::vector<std::int64_t> times;
    for (const MediaPacket& packet : clip.packets) times.push_back(packet.pts);
    return times;
  }
  static std::vector<std::string> uris(const Source& source) {
    std::vector<std::string> uris;
    for (std::uint64_t i = 0; i < source.size(); ++i) uris.push_back(source.uri(i));
    return uris;
  }

  TempDir dir_;
  IoPool io_{{.threads = 2}};
  ToyProber prober_;
  FetchedItem item_;
  std::vector<std::string> warnings_;
};

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

TEST_F(ClipsSourceTest, BringsOnlyWhatAClipIsDecodedFrom) {
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

TEST_F(ClipsSourceTest, FindsFramesWhoseTimesJumpBack) {
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

TEST_F(ClipsSourceTest, StacksTheClipsOfAFile) {
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

TEST_F(ClipsSourceTest, ReadsStackedClipsOfALongFileApart) {
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
  const ClipsSpec spec{.frames = 4, .sampling = Sampling::kUniform, .per_file = 3, .stack = true};
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

TEST_F(ClipsSourceTest, HoldsAPacketOnceThatSeveralStackedClipsNeed) {
  put_video("a.toy", 30, 30);
  const auto source =
      open({.frames = 4, .sampling = Sampling::kUniform, .per_file = 5, .stack = true});
  const MediaClip& clip = fetch(*source, 0);
  EXPECT_EQ(clip.packets.size(), 30u);
  EXPECT_EQ(clip.frames.size(), 20u);
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

TEST_F(ClipsSourceTest, GivesNoStampForRandomClips) {
  put_video("a.toy", 500);
  const auto source = open({.frames = 4, .sampling = Sampling::kRandom});
  item_.revision.asked = true;
  ASSERT_TRUE(fetch_and_wait(*source, 0, item_).ok());
  EXPECT_FALSE(item_.revision.stamp);
  EXPECT_FALSE(item_.revision.unchanged);
}

TEST_F(ClipsSourceTest, BeginsAtGivenTimesAndKeyFrames) {
  put_video("a.toy", 100, 30);
  ClipsSpec spec{.frames = 2, .sampling = Sampling::kTimestamps};
  spec.times = {0, 1.28, 1.31, 3.96, 100};
  EXPECT_THAT(uris(*open(spec)), ElementsAre("a.toy@0s", "a.toy@1.28s", "a.toy@1.28s"));
  spec.end = ClipsSpec::End::kPad;
  EXPECT_EQ(open(spec)->size(), 4u) << "the last frame is at 3.96 s";
  EXPECT_THAT(uris(*open({.frames = 2, .sampling = Sampling::kKeyframes})),
              ElementsAre("a.toy@0s", "a.toy@1.2s", "a.toy@2.4s", "a.toy@3.6s"));
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

TEST_F(ClipsSourceTest, NamesAFileThatHasChanged) {
  put_video("a.toy", 100);
  const auto source = open({.frames = 4});
  put_video("a.toy", 101);
  const Status status = fetch_and_wait(*source, 3, item_);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("a.toy has changed since it was indexed"));
}

TEST_F(ClipsSourceTest, OpensWhatWasAppliedAsItWas) {
  put_video("a.toy", 100);
  put_video("b.toy", 100);
  KeptListings kept(dir_.path("state"));
  const SourceSpec spec{.items = files(), .clips = ClipsSpec{.frames = 20}};
  const auto first = try_open(spec, &kept);
  ASSERT_TRUE(first) << first.error().message();
  const std::string id = (*first)->dataset();
  EXPECT_THAT(id, HasSubstr("+media-"));
  const int probed = prober_.probed;
  KeptListings later(dir_.path("state"));
  auto again = try_open(spec, &later, id);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ((*again)->listing_digest(), (*first)->listing_digest());
  EXPECT_EQ((*again)->values_digest(), (*first)->values_digest());
  EXPECT_EQ((*again)->dataset(), id);
  EXPECT_EQ(prober_.probed, probed);
  // Lost, it is made again as long as the files are the same.
  dir_.remove("state/media");
  KeptListings lost(dir_.path("state"));
  again = try_open(spec, &lost, id);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("indexed again, and are the same")));
  dir_.remove("state/media");
  put_video("b.toy", 99);
  KeptListings changed(dir_.path("state"));
  again = try_open(spec, &changed, id);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kDataLoss);
  EXPECT_THAT(again.error().message(), HasSubstr("the media files are others by now"));
}

TEST_F(ClipsSourceTest, HasDigestsOfClipsAndOfPackets) {
  put_video("a.toy", 100);
  const auto digests = [this](const ClipsSpec& spec) {
    const auto source = open(spec);
    return std::pair(source->listing_digest(), source->values_digest());
  };
  const auto base = digests({.frames = 4});
  EXPECT_EQ(digests({.frames = 4}), base);
  EXPECT_NE(digests({.frames = 5}).first, base.first);
  EXPECT_NE(digests({.frames = 4, .stride = 2}).first, base.first);
  put_video("a.toy", 100, 5);  // the same frames, packed otherwise
  EXPECT_EQ(digests({.frames = 4}).first, base.first);
  EXPECT_NE(digests({.frames = 4}).second, base.second);
  put_video("a.toy", 103);
  EXPECT_NE(digests({.frames = 4}).first, base.first);
}

TEST_F(ClipsSourceTest, KeysPartsByWhatTheirBytesDependOn) {
  put_video("a.toy", 100);
  const auto source = open({.frames = 4});
  std::set<std::uint64_t> keys;
  for (std::uint64_t item = 0; item < source->size(); ++item)
    EXPECT_TRUE(keys.insert(source->part_key(item, 0)).second);
  EXPECT_FALSE(keys.contains(open({.frames = 5})->part_key(0, 0)));
  EXPECT_TRUE(keys.contains(open({.frames = 4, .hop_frames = 8})->part_key(1, 0)));
}

TEST_F(ClipsSourceTest, LaysPartsOfAShardOutWithTheirClips) {
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
  // A source without clips that has the item next leaves none in it.
  const auto whole = try_open({.items = shards});
  ASSERT_TRUE(fetch_and_wait(**whole, 0, item_, {{.part = 0}, {.part = 1}}).ok());
  EXPECT_EQ(item_.clip(1), nullptr);
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
            "source.clips.field: the source has no part 'film'; it has video");
  EXPECT_THAT(refusal({.audio = "video"}), HasSubstr("there is a field 'video' already"));
}

TEST_F(ClipsSourceTest, RefusesMoreClipsThanItemsMayBe) {
  put_video("a.toy", 100);
  SourceOptions options(io_);
  options.prober = &prober_;
  options.max_items = 10;
  const auto source = open_source(
      {.items = files(), .clips = ClipsSpec{.frames = 4, .hop_frames = 1}}, std::move(options));
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code(), Code::kResourceExhausted);
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

// SPDX-License-Identifier: Apache-2.0
// Windows each of which is all the sound of a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "source/order/lengths.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::ToyMedia;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Sound of 1000 Hz in packets of 100 samples and 30 bytes.
ToyMedia sound_of(std::uint64_t samples, int rate = 1000,
                  StreamInfo::Access access = StreamInfo::Access::kPackets) {
  ToyMedia toy;
  const int sound = toy.add_sound(samples, rate);
  toy.stream(sound).media.info.access = access;
  toy.put_sound(sound, 100);
  return toy;
}

ClipsSpec whole(double min_seconds = 0, double max_seconds = 0) {
  ClipsSpec spec;
  spec.unit = ClipsSpec::Unit::kSeconds;
  spec.sampling = ClipsSpec::Sampling::kWhole;
  spec.min_seconds = min_seconds;
  spec.max_seconds = max_seconds;
  return spec;
}

double duration(const Source& source, std::uint64_t item) {
  return std::get<double>(source.value(item, source.fields().back().index));
}

class WholeSoundsTest : public ClipsFixture {
 protected:
  // A table of the files with a column of numbers as the value of that name.
  TableSpec table(const std::string& value) {
    dir_.file("t.csv", "path,number\na.toy,7\nb.toy,8\n");
    TableSpec table;
    table.file = dir_.path("t.csv");
    table.root = dir_.path("data");
    table.uris = {{.field = "video", .column = "path"}};
    table.values = {{.field = value, .column = "number", .type = ValueType::kFloat64}};
    return table;
  }
};

TEST_F(WholeSoundsTest, AreAllOfEachFile) {
  put("a.toy", sound_of(10'000));
  put("b.toy", sound_of(2550));
  const auto source = open(whole());
  EXPECT_THAT(uris(*source), ElementsAre("a.toy", "b.toy"));
  EXPECT_THAT(warnings_, IsEmpty());
  const MediaClip& clip = fetch(*source, 1);
  EXPECT_EQ(clip.first_sample, 0u);
  EXPECT_EQ(clip.samples, 2550u);
  EXPECT_FALSE(clip.loop);
  ASSERT_EQ(clip.packets.size(), 26u);
  EXPECT_EQ(clip.packets.back().pts, 2500);
  expect_own_bytes(clip);
  EXPECT_EQ(text_of(item_.part(0)).size(), 26u * 30u) << "the packets, and nothing else";
}

TEST_F(WholeSoundsTest, TellHowLongTheyAre) {
  put("a.toy", sound_of(10'000));
  put("b.toy", sound_of(2550, 3000));
  const auto source = open(whole());
  const std::vector<SourceField>& fields = source->fields();
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[1].name, "duration");
  EXPECT_EQ(fields[1].type, ValueType::kFloat64);
  EXPECT_EQ(duration(*source, 0), 10);
  EXPECT_EQ(duration(*source, 1), 0.85);
  const auto lengths = Lengths::read(
      *source, "duration",
      std::make_shared<ListingMemory>(std::uint64_t{1} << 30, TrustedUsers())->share(0));
  ASSERT_TRUE(lengths) << lengths.error().message();
  EXPECT_EQ((**lengths)[1], 0.85F);
}

TEST_F(WholeSoundsTest, AreBoundedByTheLongest) {
  put("a.toy", sound_of(2550));
  put("b.toy", sound_of(10'000));
  put("c.toy", sound_of(1000));
  const ClipShape shape{.kind = StreamInfo::Kind::kAudio,
                        .sample_rate = 1000,
                        .channels = 1,
                        .max_samples = 10'000,
                        .max_seconds = 10,
                        .is_whole = true};
  EXPECT_EQ(open(whole())->fields()[0].clip, shape);
  EXPECT_EQ(open(whole(0, 5))->fields()[0].clip->max_seconds, 2.55);
}

TEST_F(WholeSoundsTest, OfOneLengthAreOfNoFixedShapeEither) {
  put("a.toy", sound_of(2550));
  put("b.toy", sound_of(2550));
  const ClipShape shape = *open(whole())->fields()[0].clip;
  EXPECT_EQ(shape.samples, 0);
  EXPECT_EQ(shape.max_samples, 2550);
}

TEST_F(WholeSoundsTest, LeaveOutFilesOfOtherLengths) {
  put("a.toy", sound_of(999));
  put("b.toy", sound_of(1000));
  put("c.toy", sound_of(2100));
  put("d.toy", sound_of(2101));
  put("e.toy", sound_of(9000));
  ClipsSpec spec = whole(1, 2.1);
  EXPECT_THAT(uris(*open(spec)), ElementsAre("b.toy", "c.toy"));
  EXPECT_THAT(warnings_, ElementsAre("source.windows: 2 of 5 files are left: 1 shorter than "
                                     "min_seconds, which is 1 s, such as a.toy (0.999 s); 2 longer "
                                     "than max_seconds, which is 2.1 s, such as d.toy (2.101 s)"));
  spec.broken = ClipsSpec::Broken::kError;
  EXPECT_EQ(open(spec)->size(), 2u) << "a file of another length is none that is broken";
  EXPECT_EQ(open(whole(1))->size(), 4u);
  EXPECT_EQ(open(whole(0, 1))->size(), 2u);
  EXPECT_EQ(refusal(whole(100)),
            "source.windows: none of the 5 files has one: 5 shorter than min_seconds, which is "
            "100 s, such as a.toy (0.999 s)");
}

TEST_F(WholeSoundsTest, LeaveOutFilesWithoutSound) {
  put("a.toy", sound_of(1000));
  put("empty.toy", sound_of(0));
  put_video("silent.toy", 10);
  dir_.file("data/text.toy", "text");
  EXPECT_THAT(uris(*open(whole())), ElementsAre("a.toy"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("source.windows: 1 of 4 files are left: 1 without a sample"));
  EXPECT_THAT(warnings_[0], HasSubstr("1 without sound, such as silent.toy"));
  EXPECT_THAT(warnings_[0], HasSubstr("1 not readable as media, such as text.toy"));
  ClipsSpec spec = whole();
  spec.broken = ClipsSpec::Broken::kError;
  EXPECT_THAT(refusal(spec), HasSubstr("empty.toy: it has no sample of sound; mend or remove it"));
}

TEST_F(WholeSoundsTest, BringTheFileWhereADemuxerMustTakePacketsOut) {
  const ToyMedia toy = sound_of(2550, 1000, StreamInfo::Access::kDemux);
  put("a.toy", toy);
  const auto source = open(whole());
  EXPECT_EQ(fetch(*source, 0).samples, 2550u);
  EXPECT_EQ(text_of(item_.part(0)), toy.bytes());
}

TEST_F(WholeSoundsTest, BringJustTheSamplesOfUncompressedSound) {
  ToyMedia toy;
  const int sound = toy.add_sound(500, 1000, "pcm_s16le");
  toy.stream(sound).media.info.access = StreamInfo::Access::kPcm;
  toy.stream(sound).codec.block_align = 4;
  toy.put(sound, {.size_bytes = 2000, .key = true, .pts = 0});
  put("a.toy", toy);
  const auto source = open(whole());
  EXPECT_EQ(fetch(*source, 0).samples, 500u);
  EXPECT_EQ(text_of(item_.part(0)).size(), 2000u);
}

TEST_F(WholeSoundsTest, LeaveOutFilesLargerThanAnItemMayBe) {
  const ToyMedia small = sound_of(1000);
  put("a.toy", sound_of(50'000));
  put("b.toy", small);
  max_file_bytes_ = small.bytes().size();
  ClipsSpec spec = whole();
  EXPECT_THAT(uris(*open(spec)), ElementsAre("b.toy"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              HasSubstr("1 that have more than the " + std::to_string(max_file_bytes_) + " bytes"));
  spec.broken = ClipsSpec::Broken::kError;
  EXPECT_THAT(refusal(spec), HasSubstr("a.toy: it has "));
  ClipsSpec seconds{.unit = ClipsSpec::Unit::kSeconds, .seconds = 0.5};
  EXPECT_EQ(open(seconds)->size(), 102u) << "which need a part of the file alone";
}

TEST_F(WholeSoundsTest, KeepOtherValuesOfTheirFiles) {
  put("a.toy", sound_of(1000));
  put("b.toy", sound_of(2000));
  const auto source = try_open({.items = table("speed"), .clips = whole()});
  ASSERT_TRUE(source) << source.error().message();
  const std::vector<SourceField>& fields = (*source)->fields();
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[1].name, "speed");
  EXPECT_EQ(std::get<double>((*source)->value(1, fields[1].index)), 8);
  EXPECT_EQ(duration(**source, 1), 2);
}

TEST_F(WholeSoundsTest, RefuseASourceThatHasADuration) {
  put("a.toy", sound_of(1000));
  put("b.toy", sound_of(2000));
  const auto source = try_open({.items = table("duration"), .clips = whole()});
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().message(),
            "source.windows: each has a field 'duration', and so does the source; give that one "
            "another name, or leave it out");
  ClipsSpec seconds{.unit = ClipsSpec::Unit::kSeconds, .seconds = 0.5};
  EXPECT_TRUE(try_open({.items = table("duration"), .clips = seconds}));
  EXPECT_TRUE(try_open({.items = table("start"), .clips = whole()}));
}

TEST_F(WholeSoundsTest, AreNotSelectedByTheirDuration) {
  put("a.toy", sound_of(1000));
  const auto source =
      try_open({.items = files(), .select = SelectSpec{.where = "duration > 1"}, .clips = whole()});
  ASSERT_FALSE(source);
  EXPECT_THAT(source.error().message(),
              HasSubstr("'duration' is known once items were selected, which is too late for a "
                        "condition; write min_seconds and max_seconds in source.windows"));
  put("b.toy", sound_of(2000));
  const auto listed = try_open(
      {.items = table("speed"), .select = SelectSpec{.where = "speed > 7"}, .clips = whole()});
  ASSERT_TRUE(listed) << listed.error().message();
  EXPECT_THAT(uris(**listed), ElementsAre("b.toy"));
}

TEST_F(WholeSoundsTest, AreMembersOfShards) {
  test::TarWriter tar;
  tar.file("1.toy", sound_of(1500).bytes())
      .file("1.txt", "one")
      .file("2.toy", sound_of(700).bytes())
      .file("2.txt", "two");
  dir_.file("s.tar", tar.archive());
  WebdatasetSpec shards;
  shards.shards = {dir_.path("s.tar")};
  shards.parts = {{.field = "sound", .suffixes = {"toy"}}, {.field = "text", .suffixes = {"txt"}}};
  ClipsSpec spec = whole();
  spec.field = "sound";
  const auto source = try_open({.items = shards, .clips = spec});
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_THAT(uris(**source), ElementsAre("s.tar/1", "s.tar/2"));
  EXPECT_EQ(duration(**source, 1), 0.7);
  ASSERT_TRUE(fetch_and_wait(**source, 1, item_, {{.part = 0}, {.part = 1}}).ok());
  EXPECT_EQ(item_.clip(0)->samples, 700u);
  EXPECT_EQ(text_of(item_.part(0)).size(), 7u * 30u);
  EXPECT_EQ(text_of(item_.part(1)), "two");
}

TEST_F(WholeSoundsTest, OfAFileThatWasChangedAreAnError) {
  put("a.toy", sound_of(1000));
  const auto source = open(whole());
  put("a.toy", sound_of(1100));
  const Status status = fetch_and_wait(*source, 0, item_);
  EXPECT_THAT(status.message(), HasSubstr("a.toy has changed since it was indexed"));
}

TEST_F(WholeSoundsTest, HaveDigestsOfTheirLengths) {
  put("a.toy", sound_of(1000));
  put("b.toy", sound_of(2000));
  const auto digest = [this](const ClipsSpec& spec) { return open(spec)->listing_digest(); };
  const std::string all = digest(whole());
  EXPECT_EQ(digest(whole()), all);
  EXPECT_NE(digest(whole(0.5)), all);
  EXPECT_NE(digest(whole(0, 30)), all);
  EXPECT_NE(digest(whole(0.5)), digest(whole(0, 0.5 + 1.5)));
  EXPECT_NE(digest({.unit = ClipsSpec::Unit::kSeconds, .seconds = 1}), all);
  put("b.toy", sound_of(2001));
  EXPECT_NE(digest(whole()), all);
}

TEST_F(WholeSoundsTest, AreKeptByWhatTheirBytesDependOn) {
  put("a.toy", sound_of(1000));
  const std::uint64_t key = open(whole())->part_key(0, 0);
  EXPECT_EQ(open(whole(0.5, 3))->part_key(0, 0), key);
  EXPECT_NE(open({.unit = ClipsSpec::Unit::kSeconds, .seconds = 1})->part_key(0, 0), key);
}

}  // namespace
}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "source/clips_source.h"
#include "source/open_source.h"
#include "tests/support/toy_media.h"
#include "tests/unit/source/item/fake_sink.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using test::ToyMedia;
using test::ToyProber;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using End = ClipsSpec::End;
using Sampling = ClipsSpec::Sampling;

class ClipSoundTest : public ::testing::Test {
 protected:
  static ClipsSpec windows(double seconds, double hop = 0, End end = End::kDrop) {
    ClipsSpec spec;
    spec.unit = ClipsSpec::Unit::kSeconds;
    spec.seconds = seconds;
    spec.hop_seconds = hop;
    spec.end = end;
    return spec;
  }
  std::unique_ptr<Source> open(const ClipsSpec& clips) {
    FilesSpec files;
    files.root = dir_.path("data");
    files.pattern = "**";
    files.field = "video";
    SourceOptions options(io_);
    options.prober = &prober_;
    options.warnings = &warnings_;
    auto source = open_source({.items = files, .clips = clips}, std::move(options));
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }
  const MediaClip& fetch(Source& source, std::uint64_t item, std::size_t part = 0) {
    const Status status = fetch_and_wait(source, item, item_, {{.part = part}});
    EXPECT_TRUE(status.ok()) << status.message();
    return *item_.clip(0);
  }
  void put(const std::string& name, const ToyMedia& toy) { dir_.file("data/" + name, toy.bytes()); }
  void put_sound(const std::string& name, std::uint64_t samples, const std::string& codec = "aac",
                 std::int64_t each = 100, std::uint32_t bytes = 30, int rate = 1000) {
    ToyMedia toy;
    const int sound = toy.add_sound(samples, rate, codec);
    toy.put_sound(sound, each, bytes);
    put(name, toy);
  }
  // How many packets come before the one that holds the first sample.
  std::ptrdiff_t before_first(const MediaClip& clip, std::int64_t each) const {
    const auto first = static_cast<std::int64_t>(clip.first_sample) / each * each;
    return std::count_if(clip.packets.begin(), clip.packets.end(),
                         [first](const MediaPacket& packet) { return packet.pts < first; });
  }

  TempDir dir_;
  ToyProber prober_;
  IoPool io_{{.threads = 2}};
  FetchedItem item_;
  std::vector<std::string> warnings_;
};

TEST_F(ClipSoundTest, CutsSoundIntoWindows) {
  put_sound("a.toy", 10'000);
  const auto source = open(windows(2, 1.5));
  ASSERT_EQ(source->size(), 6u);
  EXPECT_EQ(source->uri(1), "a.toy@1.5s");
  EXPECT_EQ(std::get<double>(source->value(1, source->fields()[1].index)), 1.5);
  const ClipShape shape{.kind = StreamInfo::Kind::kAudio,
                        .sample_rate = 1000,
                        .channels = 1,
                        .samples = 2000,
                        .max_samples = 2000,
                        .max_seconds = 2,
                        .of_rates = {{.sample_rate = 1000, .samples = 2000}}};
  EXPECT_EQ(source->fields()[0].clip, shape);
  for (std::uint64_t item = 0; item < source->size(); ++item) {
    const MediaClip& clip = fetch(*source, item);
    EXPECT_EQ(clip.first_sample, item * 1500);
    EXPECT_EQ(clip.samples, 2000u);
    EXPECT_LE(clip.packets.front().pts, static_cast<std::int64_t>(clip.first_sample));
    EXPECT_GE(clip.packets.back().pts + 100,
              static_cast<std::int64_t>(clip.first_sample + clip.samples));
    EXPECT_LE(clip.packets.size(), 20u + 6u) << "no more than it needs";
    const std::string bytes = text_of(item_.part(0));
    for (const MediaPacket& packet : clip.packets)
      EXPECT_EQ(bytes.substr(packet.offset, 4), ToyMedia::name(0, packet.pts).substr(0, 4));
  }
}

TEST_F(ClipSoundTest, TellsWhichFormatDiffersBetweenFiles) {
  put_sound("a.toy", 10'000);
  put_sound("b.toy", 10'000, "aac", 100, 30, 2000);
  put_sound("c.toy", 10'000);
  const auto source = open(windows(2));
  const ClipShape shape{
      .kind = StreamInfo::Kind::kAudio,
      .channels = 1,
      .max_samples = 4000,
      .max_seconds = 2,
      .of_rates = {{.sample_rate = 1000, .samples = 2000}, {.sample_rate = 2000, .samples = 4000}}};
  EXPECT_EQ(source->fields()[0].clip, shape);
}

TEST_F(ClipSoundTest, TellsNoRatesWhereThereAreTooMany) {
  for (int i = 0; i <= static_cast<int>(ClipShape::kMostRates); ++i)
    put_sound(std::to_string(i) + ".toy", 10'000, "aac", 100, 30, 1000 + i);
  const auto source = open(windows(2));
  EXPECT_THAT(source->fields()[0].clip->of_rates, ::testing::IsEmpty());
}

TEST_F(ClipSoundTest, BringsWhatADecoderMustHaveSeenBefore) {
  put_sound("aac.toy", 10'000, "aac");
  put_sound("flac.toy", 10'000, "flac");
  put_sound("mp3.toy", 10'000, "mp3", 100, 138);  // each holds 100 bytes of main data
  put_sound("opus.toy", 10'000, "opus", 20);
  const auto source = open(windows(0.5, 5));
  ASSERT_EQ(source->size(), 8u);
  // One of them for rounded times.
  EXPECT_EQ(before_first(fetch(*source, 1), 100), 3);
  EXPECT_EQ(before_first(fetch(*source, 3), 100), 1);
  EXPECT_GE(before_first(fetch(*source, 5), 100), 1 + 2 + 6);
  const MediaClip& opus = fetch(*source, 7);
  EXPECT_LE(opus.packets.front().pts, 5000 - 80);
  // Where there is nothing before, it begins with the first packet.
  EXPECT_EQ(before_first(fetch(*source, 0), 100), 0);
}

TEST_F(ClipSoundTest, FindsWindowsInLongFiles) {
  put_sound("a.toy", 1'000'000, "aac", 10);
  const auto source = open(windows(0.1, 7.3));
  for (std::uint64_t item = 0; item < source->size(); ++item) {
    const MediaClip& clip = fetch(*source, item);
    EXPECT_EQ(before_first(clip, 10), std::min<std::ptrdiff_t>(3, item * 730));
    EXPECT_LE(clip.packets.size(), 17u);
  }
}

TEST_F(ClipSoundTest, CountsSamplesFromTheFirstThatIsHeard) {
  ToyMedia toy;
  const int sound = toy.add_sound(1000, 1000);
  // An encoder's delay of 150 samples: a packet of which nothing is heard, and half of another.
  toy.put(sound, {.size_bytes = 9, .key = true, .discard = true, .pts = -150, .duration = 100});
  toy.put(sound, {.size_bytes = 9, .key = true, .pts = -50, .duration = 100, .skip_samples = 50});
  for (std::int64_t at = 50; at < 1000; at += 100)
    toy.put(sound, {.size_bytes = 9, .key = true, .pts = at, .duration = 100});
  put("a.toy", toy);
  const auto source = open(windows(0.1));
  const MediaClip& clip = fetch(*source, 6);
  EXPECT_EQ(clip.first_sample, 600u);
  // 550 holds it; three before, one behind that which holds the last sample, and one more.
  std::vector<std::int64_t> times;
  for (const MediaPacket& packet : clip.packets) times.push_back(packet.pts);
  EXPECT_THAT(times, ElementsAre(250, 350, 450, 550, 650, 750, 850));
}

TEST_F(ClipSoundTest, BringsJustTheBytesOfUncompressedSamples) {
  ToyMedia toy;
  const int sound = toy.add_sound(1000, 1000, "pcm_s16le");
  toy.stream(sound).media.info.access = StreamInfo::Access::kPcm;
  toy.stream(sound).codec.block_align = 4;
  toy.put(sound, {.size_bytes = 4000, .key = true, .pts = 0});
  put("a.toy", toy);
  const auto source = open(windows(0.3, 0, End::kPad));
  ASSERT_EQ(source->size(), 4u);
  std::string body;
  while (body.size() < 4000) body += ToyMedia::name(0, 0);
  const MediaClip& clip = fetch(*source, 2);
  EXPECT_TRUE(clip.packets.empty());
  EXPECT_EQ(clip.bytes_first_sample, 600u);
  EXPECT_EQ(text_of(item_.part(0)), body.substr(2400, 1200));
  const MediaClip& last = fetch(*source, 3);
  EXPECT_EQ(last.first_sample, 900u);
  EXPECT_EQ(last.samples, 300u) << "what is beyond the end is silence";
  EXPECT_EQ(text_of(item_.part(0)), body.substr(3600, 400));
  EXPECT_FALSE(last.loop);
  EXPECT_TRUE(fetch(*open(windows(0.3, 0, End::kLoop)), 3).loop);
}

TEST_F(ClipSoundTest, BringsTheWholeFileWhereADemuxerMustTakePacketsOut) {
  ToyMedia toy;
  const int sound = toy.add_sound(1000, 1000, "vorbis");
  toy.stream(sound).media.info.access = StreamInfo::Access::kDemux;
  toy.put_sound(sound, 100);
  put("a.toy", toy);
  const auto source = open(windows(0.5));
  ASSERT_EQ(source->size(), 2u);
  EXPECT_EQ(fetch(*source, 1).first_sample, 500u);
  EXPECT_EQ(text_of(item_.part(0)), toy.bytes());
}

// A video of 25 frames a second whose sound begins at `sound_begin` of its clock of 1000 Hz.
ToyMedia video_with_sound(std::int64_t sound_begin) {
  ToyMedia toy;
  const int video = toy.add_video();
  const int sound = toy.add_sound(10'000, 1000);
  for (std::int64_t frame = 0; frame < 250; ++frame) {
    toy.put(video, {.size_bytes = 40, .key = frame % 10 == 0, .pts = frame, .dts = frame});
    toy.put(sound,
            {.size_bytes = 20, .key = true, .pts = sound_begin + frame * 40, .duration = 40});
  }
  return toy;
}

TEST_F(ClipSoundTest, BringsAVideosSoundOfTheSameTime) {
  put("a.toy", video_with_sound(0));
  const auto source = open({.frames = 10, .stride = 2, .audio = "sound"});
  const std::vector<SourceField>& fields = source->fields();
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[1].name, "sound");
  const ClipShape shape{.kind = StreamInfo::Kind::kAudio,
                        .sample_rate = 1000,
                        .channels = 1,
                        .samples = 800,
                        .max_samples = 800,
                        .max_seconds = 0.8,
                        .of_rates = {{.sample_rate = 1000, .samples = 800}}};
  EXPECT_EQ(fields[1].clip, shape);
  ASSERT_TRUE(fetch_and_wait(*source, 3, item_, {{.part = 0}, {.part = 1}}).ok());
  EXPECT_EQ(item_.clip(0)->frames.front(), 60);
  EXPECT_EQ(item_.clip(1)->first_sample, 2400u);
  EXPECT_EQ(item_.clip(1)->samples, 800u);
  EXPECT_EQ(item_.clip(1)->stream.codec->codec, "aac");
  EXPECT_NE(source->part_key(3, 0), source->part_key(3, 1));
  const std::string bytes = text_of(item_.part(1));
  const MediaPacket& packet = item_.clip(1)->packets[3];
  EXPECT_EQ(bytes.substr(packet.offset, 6), ToyMedia::name(1, packet.pts).substr(0, 6));
}

TEST_F(ClipSoundTest, KeepsSoundOnTheVideosClock) {
  put("late.toy", video_with_sound(100));
  const auto source = open({.frames = 10, .audio = "sound"});
  const MediaClip& first = fetch(*source, 0, 1);
  EXPECT_EQ(first.silence_before, 100u);
  EXPECT_EQ(first.first_sample, 0u);
  EXPECT_EQ(first.samples, 400u);
  const MediaClip& second = fetch(*source, 1, 1);
  EXPECT_EQ(second.silence_before, 0u);
  EXPECT_EQ(second.first_sample, 300u);
}

// Sample 4000 is heard at 4.6 s, 6000 at 6.7 s.
ToyMedia video_with_gaps() {
  ToyMedia toy = video_with_sound(0);
  toy.stream(1).media.gaps = {{.before = 4000, .samples = 600}, {.before = 6000, .samples = 100}};
  return toy;
}

TEST_F(ClipSoundTest, FindsSoundBehindAGapByItsTime) {
  put("a.toy", video_with_gaps());
  const auto source = open({.frames = 5, .audio = "sound"});
  const auto first_of = [&](std::uint64_t item) {
    const MediaClip& clip = fetch(*source, item, 1);
    EXPECT_EQ(clip.silence_before, 0u) << item;
    EXPECT_THAT(clip.gaps, ::testing::IsEmpty()) << item;
    EXPECT_EQ(clip.samples, 200u);
    // The packet that holds the first sample is there, and the sound behind it.
    EXPECT_LE(clip.packets.front().pts, static_cast<std::int64_t>(clip.first_sample));
    EXPECT_GE(clip.packets.back().pts + 40, static_cast<std::int64_t>(clip.first_sample) + 200);
    return clip.first_sample;
  };
  EXPECT_EQ(first_of(19), 3800u);
  EXPECT_EQ(first_of(23), 4000u);
  EXPECT_EQ(first_of(32), 5800u);
  EXPECT_EQ(first_of(34), 6100u);
}

TEST_F(ClipSoundTest, PutsSilenceWhereAClipMeetsAGap) {
  put("a.toy", video_with_gaps());
  const auto source = open({.frames = 10, .hop_frames = 5, .audio = "sound"});
  const MediaClip& before = fetch(*source, 19, 1);  // from 3.8 s on
  EXPECT_EQ(before.first_sample, 3800u);
  EXPECT_THAT(before.gaps, ElementsAre(SoundGap{.before = 4000, .samples = 200}));
  const MediaClip& within = fetch(*source, 20, 1);  // from 4.0 s on
  EXPECT_EQ(within.silence_before, 400u);
  EXPECT_THAT(within.packets, ::testing::IsEmpty());
  EXPECT_THAT(within.gaps, ::testing::IsEmpty());
  const MediaClip& behind = fetch(*source, 22, 1);  // from 4.4 s on
  EXPECT_EQ(behind.silence_before, 200u);
  EXPECT_EQ(behind.first_sample, 4000u);
  const MediaClip& around = fetch(*source, 32, 1);  // from 6.4 s on
  EXPECT_EQ(around.silence_before, 0u);
  EXPECT_EQ(around.first_sample, 5800u);
  EXPECT_THAT(around.gaps, ElementsAre(SoundGap{.before = 6000, .samples = 100}));
}

TEST_F(ClipSoundTest, BeginsLaterBehindAGapBeforeTheSound) {
  ToyMedia toy = video_with_sound(100);
  toy.stream(1).media.gaps = {{.before = 100, .samples = 50}};
  put("a.toy", toy);
  const auto source = open({.frames = 10, .audio = "sound"});
  const MediaClip& first = fetch(*source, 0, 1);
  EXPECT_EQ(first.silence_before, 150u);
  EXPECT_EQ(first.first_sample, 0u);
  EXPECT_THAT(first.gaps, ::testing::IsEmpty());
  EXPECT_EQ(fetch(*source, 1, 1).first_sample, 250u);
}

TEST_F(ClipSoundTest, ClosesGapsInWindows) {
  put("a.toy", video_with_gaps());
  const auto source = open(windows(0.5));
  const MediaClip& clip = fetch(*source, 10);
  EXPECT_EQ(clip.first_sample, 5000u);
  EXPECT_THAT(clip.gaps, ::testing::IsEmpty());
}

TEST_F(ClipSoundTest, LeavesOutVideosWhoseSoundGoesBack) {
  put("a.toy", video_with_sound(0));
  ToyMedia back = video_with_sound(0);
  back.stream(1).media.info.is_off_clock = true;
  put("b.toy", back);
  EXPECT_EQ(open({.frames = 100, .audio = "sound"})->size(), 2u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("1 whose sound's times go back"));
  EXPECT_THAT(warnings_[0], HasSubstr("aresample=async=1"));
  EXPECT_EQ(open({.frames = 100})->size(), 4u);
}

TEST_F(ClipSoundTest, HasSilenceWhereAVideoIsFarFromItsSound) {
  for (const std::int64_t far : {std::int64_t{1} << 52, -(std::int64_t{1} << 52)}) {
    ToyMedia toy;
    const int video = toy.add_video(320, 240, 1);
    const int sound = toy.add_sound(10'000, 48000);
    for (std::int64_t i = 0; i < 4; ++i)
      toy.put(video, {.size_bytes = 40, .key = true, .pts = far + i, .dts = far + i});
    toy.put_sound(sound, 40);
    put("a.toy", toy);
    const auto source = open({.frames = 2, .audio = "sound"});
    const MediaClip& clip = fetch(*source, 0, 1);
    EXPECT_EQ(clip.samples, 96'000u);
    EXPECT_EQ(clip.silence_before, far > 0 ? 0u : 96'000u);
    EXPECT_EQ(clip.first_sample > 10'000, far > 0);
    EXPECT_TRUE(clip.packets.empty());
  }
}

TEST_F(ClipSoundTest, FollowsUnevenFrames) {
  ToyMedia toy;
  const int video = toy.add_video(320, 240, 1000);
  const int sound = toy.add_sound(10'000, 1000);
  std::vector<std::int64_t> times;
  for (std::int64_t i = 0, at = 0; i < 100; ++i, at += i % 10 == 0 ? 300 : 20) times.push_back(at);
  for (const std::int64_t at : times)
    toy.put(video, {.size_bytes = 40, .key = true, .pts = at, .dts = at});
  toy.put_sound(sound, 40);
  put("a.toy", toy);
  const auto source = open({.frames = 10, .hop_frames = 5, .audio = "sound"});
  EXPECT_EQ(source->fields()[1].clip->samples, 0);
  for (std::uint64_t item = 0; item + 2 < source->size(); ++item) {
    const MediaClip& clip = fetch(*source, item, 1);
    EXPECT_EQ(clip.first_sample, static_cast<std::uint64_t>(times[item * 5]));
    EXPECT_EQ(clip.samples, static_cast<std::uint64_t>(times[item * 5 + 10] - times[item * 5]));
    EXPECT_LE(clip.samples, static_cast<std::uint64_t>(source->fields()[1].clip->max_samples));
  }
}

TEST_F(ClipSoundTest, LeavesOutVideosWhoseSoundIsMissing) {
  put("a.toy", video_with_sound(0));
  ToyMedia mute;
  mute.put_frames(mute.add_video(), 100, 10);
  put("b.toy", mute);
  const auto source = open({.frames = 100, .audio = "sound"});
  EXPECT_EQ(source->size(), 2u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("1 without sound, such as b.toy"));
}

}  // namespace
}  // namespace spdld::source

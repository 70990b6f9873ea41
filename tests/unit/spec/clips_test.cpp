// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

using ::testing::HasSubstr;
using Sampling = ClipsSpec::Sampling;

std::string with_clips(const std::string& clips) {
  return "pipeline: p\nsource:\n  files: {root: /data, label: none}\n  " + clips +
         "\nstages: [fetch]\nbatch: {size: 4, max_bytes: 1MiB}\n";
}
ClipsSpec clips_of(const std::string& clips) {
  const auto spec = parse(with_clips(clips));
  EXPECT_TRUE(spec) << spec.error().message();
  EXPECT_TRUE(spec && spec->source.clips);
  return spec && spec->source.clips ? *spec->source.clips : ClipsSpec();
}
std::string clips_error(const std::string& clips) { return parse_error(with_clips(clips)); }

TEST(Clips, HaveDefaults) {
  const ClipsSpec expected{.frames = 16, .stride = 1, .sampling = Sampling::kDense};
  EXPECT_EQ(clips_of("clips: {}"), expected);
}

TEST(Clips, ReadEveryKey) {
  const ClipsSpec expected{.field = "video",
                           .stream = "1",
                           .frames = 8,
                           .stride = 4,
                           .hop_frames = 10,
                           .end = ClipsSpec::End::kPad,
                           .audio = "sound",
                           .audio_stream = "eng",
                           .broken = ClipsSpec::Broken::kError};
  EXPECT_EQ(clips_of("clips: {frames: 8, stride: 4, hop: 10, end: pad, field: video, stream: 1, "
                     "audio: sound, audio_stream: eng, broken: error, sampling: dense}"),
            expected);
  const ClipsSpec stacked{.sampling = Sampling::kRandom, .per_file = 4, .stack = true};
  EXPECT_EQ(clips_of("clips: {sampling: random, per_file: 4, stack: true}"), stacked);
}

TEST(Clips, ReadTimes) {
  EXPECT_EQ(clips_of("clips: {timestamps: [0, 2.5]}"),
            (ClipsSpec{.sampling = Sampling::kTimestamps, .times = {0, 2.5}}));
  EXPECT_EQ(clips_of("clips: {sampling: timestamps, timestamps: when}"),
            (ClipsSpec{.sampling = Sampling::kTimestamps, .times_field = "when"}));
  EXPECT_EQ(clips_of("clips: {sampling: keyframes}").sampling, Sampling::kKeyframes);
}

TEST(Clips, RefuseKeysThatContradictEachOther) {
  EXPECT_EQ(clips_error("clips: {per_file: 4}"),
            "p.yaml:4:21: source.clips.per_file: add 'sampling: uniform', which spreads them "
            "evenly, or 'sampling: random'");
  EXPECT_EQ(clips_error("clips: {sampling: dense, per_file: 4}"),
            "p.yaml:4:38: source.clips.per_file: of a file there are as many as 'sampling: dense' "
            "gives; leave it out, or write 'sampling: uniform' or 'random'");
  EXPECT_EQ(clips_error("clips: {sampling: random, hop: 4}"),
            "p.yaml:4:34: source.clips.hop: it is how far apart those of 'sampling: dense' are; "
            "leave it out, or write that");
  EXPECT_THAT(clips_error("clips: {sampling: random, timestamps: [1]}"),
              HasSubstr("leave one of the two out"));
  EXPECT_THAT(clips_error("clips: {sampling: timestamps}"), HasSubstr("add 'timestamps'"));
  EXPECT_THAT(clips_error("clips: {timestamps: []}"), HasSubstr("name at least one time"));
  EXPECT_THAT(clips_error("clips: {stack: true}"), HasSubstr("write 'sampling: uniform'"));
  EXPECT_THAT(clips_error("clips: {stack: true, sampling: random, per_file: 65}"),
              HasSubstr("an item has at most 64 clips"));
  EXPECT_THAT(clips_error("clips: {stack: true, sampling: random, per_file: 2, audio: a}"),
              HasSubstr("leave 'stack' out"));
  EXPECT_THAT(clips_error("clips: {audio_stream: eng}"), HasSubstr("add 'audio: NAME'"));
}

TEST(Clips, AreNotWindows) {
  EXPECT_THAT(clips_error("clips: {sampling: whole}"), HasSubstr("'whole' is not one of dense"));
  EXPECT_THAT(clips_error("clips: {min_seconds: 1}"), HasSubstr("unknown key 'min_seconds'"));
  EXPECT_THAT(clips_error("windows: {}"), HasSubstr("seconds"));
  EXPECT_THAT(clips_error("windows: {seconds: 1, frames: 4}"),
              HasSubstr("clips of video have frames"));
  EXPECT_THAT(clips_error("windows: {seconds: 1, sampling: keyframes}"), HasSubstr("keyframes"));
  EXPECT_THAT(clips_error("windows: {seconds: 0}"), HasSubstr("seconds"));
  EXPECT_EQ(clips_error("clips: {}\n  windows: {seconds: 1}"),
            "p.yaml:5:12: source.windows: items are clips already; write 'audio: NAME' in 'clips' "
            "for their sound, or leave 'clips' out");
}

TEST(Clips, RefuseValuesOutOfBounds) {
  EXPECT_THAT(clips_error("clips: {frames: 0}"), HasSubstr("source.clips.frames"));
  EXPECT_THAT(clips_error("clips: {frames: 5000}"), HasSubstr("4096"));
  EXPECT_THAT(clips_error("clips: {timestamps: [-1]}"), HasSubstr("timestamps"));
  EXPECT_THAT(clips_error("clips: {num_frames: 4}"), HasSubstr("write 'frames: N'"));
  EXPECT_THAT(clips_error("clips: {audio: \"a b\"}"), HasSubstr("source.clips.audio"));
  EXPECT_LT(clips_error("clips: {field: " + std::string(70'000, 'a') + "}").size(), 300u);
}

}  // namespace
}  // namespace spdld::spec

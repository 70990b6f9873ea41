// SPDX-License-Identifier: Apache-2.0
#include "media/audio/resampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/media/audio/sound_reference.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

Sound made_of(const Sound& in, int rate, int channels, const ResampleOptions& options = {}) {
  Resampler resampler(options);
  Sound out;
  const Status done = resampler.run(in, Channels{in.channels, 0}, rate, channels, out);
  EXPECT_TRUE(done.ok()) << done.message();
  out.values.resize(static_cast<std::size_t>(out.channels * out.length));
  return out;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Sound of these many channels from a file, and the file for FFmpeg's command line.
Sound some(const MediaMaker& maker, int rate, int channels, const std::string& name) {
  const Bytes bytes = maker.make(
      some_sound(1.3, rate) + "-ac " + std::to_string(channels) + " -c:a pcm_f32le", name);
  return sound_of(bytes);
}

TEST(Resampler, GivesTheSamplesOfFfmpegsFilter) {
  const MediaMaker maker;
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{44100, 16000},
                                                                 {48000, 16000},
                                                                 {8000, 16000},
                                                                 {22050, 48000},
                                                                 {16000, 44100},
                                                                 {44100, 7919}}) {
    const std::string name = std::to_string(from) + ".wav";
    const Sound in = some(maker, from, 1, name);
    const Sound out = made_of(in, to, 1);
    EXPECT_EQ(out.sample_rate, to);
    const std::vector<float> expected =
        ffmpeg_samples(maker, name, 1, "-af aresample=" + std::to_string(to));
    ASSERT_EQ(out.values.size(), expected.size()) << from << " to " << to;
    EXPECT_EQ(largest_difference(out.values, expected), 0.0F) << from << " to " << to;
  }
}

TEST(Resampler, TakesFfmpegsParametersByTheirNames) {
  const MediaMaker maker;
  const Sound in = some(maker, 44100, 2, "a.wav");
  const ResampleOptions options{.filter_size = 64,
                                .phase_shift = 8,
                                .linear_interp = false,
                                .exact_rational = false,
                                .cutoff = 0.9,
                                .filter_type = SWR_FILTER_TYPE_BLACKMAN_NUTTALL};
  const Sound out = made_of(in, 24000, 2, options);
  const std::vector<float> expected = ffmpeg_samples(
      maker, "a.wav", 2,
      "-af aresample=24000:filter_size=64:phase_shift=8:linear_interp=0:exact_rational=0:"
      "cutoff=0.9:filter_type=blackman_nuttall");
  ASSERT_EQ(out.values.size(), expected.size());
  EXPECT_EQ(largest_difference(out.values, expected), 0.0F);
}

TEST(Resampler, MixesChannelsAsFfmpegDoesForIntegers) {
  const MediaMaker maker;
  for (const auto& [from, to] :
       std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {6, 2}, {6, 1}, {2, 6}}) {
    const Sound in = some(maker, 16000, from, "a.wav");
    const Sound out = made_of(in, 16000, to);
    EXPECT_EQ(out.channels, to);
    const std::vector<float> expected =
        ffmpeg_samples(maker, "a.wav", to,
                       "-af aresample=rematrix_maxval=1:ochl=" + std::string(to == 1   ? "mono"
                                                                             : to == 2 ? "stereo"
                                                                                       : "5.1"));
    ASSERT_EQ(out.values.size(), expected.size()) << from << " to " << to;
    EXPECT_LE(largest_difference(out.values, expected), 1e-7F) << from << " to " << to;
  }
}

TEST(Resampler, MixesStereoToItsMean) {
  Sound in;
  in.reshape(2, 0, 2);
  in.sample_rate = 16000;
  in.values = {1.0F, 0.5F, -0.5F, 1.0F};
  EXPECT_THAT(made_of(in, 16000, 1).values, ::testing::ElementsAre(0.25F, 0.75F));
}

TEST(Resampler, ForgetsTheSoundBefore) {
  const MediaMaker maker;
  const Sound in = some(maker, 44100, 2, "a.wav");
  const Sound other = some(maker, 48000, 1, "b.wav");
  Resampler resampler({});
  Sound first;
  Sound between;
  Sound again;
  ASSERT_TRUE(resampler.run(in, Channels{2, 0}, 16000, 1, first).ok());
  ASSERT_TRUE(resampler.run(other, Channels{1, 0}, 16000, 1, between).ok());
  ASSERT_TRUE(resampler.run(in, Channels{2, 0}, 16000, 1, again).ok());
  first.values.resize(static_cast<std::size_t>(first.length));
  again.values.resize(static_cast<std::size_t>(again.length));
  EXPECT_EQ(first.values, again.values);
}

TEST(Resampler, KnowsHowManySamplesItMakes) {
  Resampler resampler({});
  for (const std::int64_t length : {100, 441, 16384, 16385, 44100, 100001}) {
    for (const auto& [from, to] : std::vector<std::pair<int, int>>{
             {44100, 16000}, {48000, 16000}, {8000, 44100}, {16000, 16000}, {11025, 7919}}) {
      Sound in;
      in.sample_rate = from;
      in.reshape(1, 0, length);
      const Result<std::int64_t> known = resampler.length_of(length, from, to);
      ASSERT_TRUE(known);
      EXPECT_EQ(*known, made_of(in, to, 1).length) << length << " " << from << " to " << to;
      EXPECT_LE(*known, Resampler::most_length(length, from, to));
    }
  }
}

TEST(Resampler, RefusesSoundThatIsShorterThanItsFilter) {
  Sound in;
  in.sample_rate = 44100;
  in.reshape(1, 0, 5);
  Sound out;
  const Status done = Resampler({}).run(in, Channels{1, 0}, 16000, 1, out);
  EXPECT_EQ(done.code(), Code::kDataLoss);
  EXPECT_THAT(done.message(), HasSubstr("it has 5 samples, which are too few"));
}

TEST(Resampler, RefusesChannelsThatHaveNoMatrix) {
  Sound in;
  in.sample_rate = 16000;
  in.reshape(11, 0, 100);
  Sound out;
  const Status done = Resampler({}).run(in, Channels{11, 0}, 16000, 1, out);
  EXPECT_EQ(done.code(), Code::kInvalidArgument);
  EXPECT_THAT(done.message(), HasSubstr("it has 11 channels, which FFmpeg cannot mix to 1"));
}

TEST(Resampler, RefusesAFilterThatTakesMuchMemory) {
  Sound in;
  in.sample_rate = 767999;
  in.reshape(1, 0, 100);
  Sound out;
  const Status done =
      Resampler({.filter_size = 256, .phase_shift = 14}).run(in, Channels{1, 0}, 1000, 1, out);
  EXPECT_EQ(done.code(), Code::kInvalidArgument);
  EXPECT_THAT(done.message(), HasSubstr("would be too large"));
}

}  // namespace
}  // namespace spdld::media::test

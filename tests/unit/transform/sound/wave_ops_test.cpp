// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/transform/sound/sounds.h"

namespace spdld::transform {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParamValue samples(std::int64_t count) { return count; }

Sound counted_up(int channels, std::int64_t length) {
  Sound sound = silence(channels, length);
  for (std::size_t i = 0; i < sound.values.size(); ++i) sound.values[i] = static_cast<float>(i + 1);
  return sound;
}

double peak(const Sound& sound) {
  float most = 0;
  for (const float value : sound.values) most = std::max(most, std::abs(value));
  return most;
}

double mean_square(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return squares / static_cast<double>(values.size());
}

TEST(PadOrTrim, CutsAndPadsEveryChannel) {
  EXPECT_THAT(changed("pad_or_trim", {{"samples", samples(2)}}, counted_up(2, 3)).values,
              ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(changed("pad_or_trim", {{"samples", samples(5)}}, counted_up(2, 3)).values,
              ElementsAre(1, 2, 3, 0, 0, 4, 5, 6, 0, 0));
  EXPECT_THAT(changed("pad_or_trim", {{"samples", samples(3)}}, counted_up(2, 3)).values,
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(changed("pad_or_trim", {{"samples", samples(3)}}, silence(2, 0)).values,
              ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(PadOrTrim, LeavesNothingOfASoundBefore) {
  MadeStep step("pad_or_trim", {{"samples", samples(6)}}, {.channels = 2});
  Sound sound = counted_up(2, 9);
  ASSERT_TRUE(step.run(sound).ok());
  sound.reshape(2, 0, 1);
  sound.values = {1, 2};
  ASSERT_TRUE(step.run(sound).ok());
  EXPECT_THAT(sound.values, ElementsAre(1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0));
}

TEST(PadOrTrim, KeepsTheMiddle) {
  EXPECT_THAT(changed("pad_or_trim", {{"samples", samples(2)}, {"crop", std::string("center")}},
                      counted_up(1, 5))
                  .values,
              ElementsAre(2, 3));
}

TEST(PadOrTrim, DrawsWhichPartIsKept) {
  const Values params{{"samples", samples(2)}, {"crop", std::string("random")}};
  std::set<float> begins;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const Sound part = changed("pad_or_trim", params, counted_up(2, 5), key);
    begins.insert(part.values[0]);
    EXPECT_THAT(part.values, ElementsAre(part.values[0], part.values[0] + 1, part.values[0] + 5,
                                         part.values[0] + 6));
    EXPECT_EQ(part.values, changed("pad_or_trim", params, counted_up(2, 5), key).values);
  }
  EXPECT_THAT(begins, ElementsAre(1, 2, 3, 4));
}

TEST(PadOrTrim, CountsSecondsAtTheSoundsRate) {
  EXPECT_EQ(changed("pad_or_trim", {{"seconds", 0.5}}, silence(1, 10, 44100)).length, 22050);
  EXPECT_THAT(output_refusal("pad_or_trim", {{"seconds", 1.0}}, {}),
              HasSubstr("the sample rate differs from file to file"));
  EXPECT_THAT(output_refusal("pad_or_trim", {{"seconds", 1e-6}}, {.sample_rate = 16000}),
              HasSubstr("at least one sample"));
  EXPECT_EQ(output_refusal("pad_or_trim", {{"samples", samples(5)}}, {}), "accepted");
}

TEST(PadOrTrim, TakesOneLength) {
  EXPECT_THAT(refusal("pad_or_trim", {}), HasSubstr("one of 'seconds' and 'samples'"));
  EXPECT_THAT(refusal("pad_or_trim", {{"samples", samples(5)}, {"seconds", 1.0}}),
              HasSubstr("one of 'seconds' and 'samples'"));
}

TEST(MixChannels, MakesTheMeanOfAll) {
  Sound sound = silence(3, 2);
  sound.values = {0.5F, 1, 0.25F, -1, 0.75F, 3};
  EXPECT_THAT(changed("mix_channels", {}, sound).values, ElementsAre(0.5F, 1));
  EXPECT_EQ(changed("mix_channels", {}, pattern(1, 99)).values, pattern(1, 99).values);
  EXPECT_EQ(changed("mix_channels", {}, silence(2, 0)).length, 0);
}

TEST(Gain, IsFixedOrDrawn) {
  EXPECT_NEAR(peak(changed("gain", {{"gain_db", Floats{20}}}, counted_up(1, 3))), 30, 1e-5);
  const Values range{{"gain_db", Floats{-20, 20}}};
  std::set<double> peaks;
  for (std::uint64_t key = 0; key < 100; ++key) {
    const double drawn = peak(changed("gain", range, counted_up(1, 1), key));
    EXPECT_GE(drawn, 0.0999);
    EXPECT_LE(drawn, 10.001);
    EXPECT_EQ(drawn, peak(changed("gain", range, counted_up(1, 1), key)));
    peaks.insert(drawn);
  }
  EXPECT_GT(peaks.size(), 90U);
  EXPECT_THAT(refusal("gain", {{"gain_db", Floats{3, 1}}}), HasSubstr("low <= high; swap the two"));
}

TEST(NormalizeAudio, BringsThePeakToTheTarget) {
  EXPECT_NEAR(peak(changed("normalize_audio", {}, pattern(2, 500))), 1, 1e-6);
  EXPECT_NEAR(peak(changed("normalize_audio", {{"target_db", -6.0}}, pattern(1, 500))), 0.501187,
              1e-5);
}

TEST(NormalizeAudio, BringsTheMeanSquareToTheTarget) {
  const Sound sound = changed("normalize_audio", {{"mode", std::string("rms")}}, pattern(2, 500));
  EXPECT_NEAR(mean_square(sound.values), 0.01, 1e-7);
}

TEST(NormalizeAudio, KeepsTheBalanceOfChannels) {
  Sound sound = silence(2, 2);
  sound.values = {0.1F, 0.2F, 0.05F, -0.4F};
  const Sound normal = changed("normalize_audio", {}, sound);
  EXPECT_THAT(normal.values, ElementsAre(0.25F, 0.5F, 0.125F, -1.0F));
}

TEST(NormalizeAudio, StandardizesAsWav2vec2) {
  const Sound sound =
      changed("normalize_audio", {{"mode", std::string("standard")}}, pattern(1, 999));
  double sum = 0;
  for (const float value : sound.values) sum += value;
  EXPECT_NEAR(sum / 999, 0, 1e-6);
  EXPECT_NEAR(mean_square(sound.values), 1, 1e-4);
  EXPECT_THAT(refusal("normalize_audio", {{"mode", std::string("standard")}, {"target_db", 1.0}}),
              HasSubstr("leave target_db out"));
}

TEST(NormalizeAudio, LeavesSilenceAndAlmostSilenceFinite) {
  for (const std::string mode : {"peak", "rms", "standard"}) {
    EXPECT_THAT(changed("normalize_audio", {{"mode", mode}}, silence(2, 9)).values, Each(0.0F));
    EXPECT_EQ(changed("normalize_audio", {{"mode", mode}}, silence(1, 0)).length, 0);
    Sound faint = silence(1, 3);
    faint.values[1] = std::numeric_limits<float>::denorm_min();
    for (const float value : changed("normalize_audio", {{"mode", mode}}, faint).values) {
      EXPECT_TRUE(std::isfinite(value)) << mode;
    }
  }
}

TEST(WaveOps, RefuseSamplesThatAreNoNumbers) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Sound sound = pattern(1, 50);
    sound.values[33] = bad;
    for (const std::string mode : {"peak", "rms", "standard"}) {
      EXPECT_EQ(data_error("normalize_audio", {{"mode", mode}}, sound).code(), Code::kDataLoss);
    }
    EXPECT_EQ(data_error("add_noise", {{"snr", Floats{3}}}, sound).code(), Code::kDataLoss);
  }
}

TEST(WaveOps, NeedSamples) {
  const AudioFormat spectrum{.sample_rate = 16000, .channels = 1, .length = 30, .bins = 80};
  EXPECT_THAT(output_refusal("gain", {}, spectrum), HasSubstr("put 'gain' before that stage"));
  EXPECT_THAT(output_refusal("mix_channels", {}, spectrum), HasSubstr("works on samples"));
  EXPECT_THAT(output_refusal("normalize_audio", {}, spectrum), HasSubstr("works on samples"));
  EXPECT_THAT(output_refusal("add_noise", {{"snr", Floats{3}}}, spectrum),
              HasSubstr("works on samples"));
  EXPECT_THAT(output_refusal("pad_or_trim", {{"samples", samples(5)}}, spectrum),
              HasSubstr("works on samples"));
  EXPECT_THAT(output_refusal("speed_perturbation", {{"factors", Floats{2}}}, spectrum),
              HasSubstr("works on samples"));
}

std::vector<float> difference(const Sound& a, const Sound& b) {
  std::vector<float> values;
  for (std::size_t i = 0; i < a.values.size(); ++i) values.push_back(a.values[i] - b.values[i]);
  return values;
}

TEST(AddNoise, HasTheRatioThatWasAskedFor) {
  const Sound sound = sine(440, 20000);
  for (const double snr : {-10.0, 0.0, 25.0}) {
    const Sound noisy = changed("add_noise", {{"snr", Floats{snr}}}, sound);
    const double ratio = mean_square(sound.values) / mean_square(difference(noisy, sound));
    EXPECT_NEAR(10 * std::log10(ratio), snr, 1e-3);
  }
}

TEST(AddNoise, IsNormalAndWhite) {
  const Sound sound = sine(440, 200000);
  std::vector<float> noise = difference(changed("add_noise", {{"snr", Floats{0}}}, sound), sound);
  const auto count = static_cast<double>(noise.size());
  const double deviation = std::sqrt(mean_square(noise));
  double sum = 0;
  double neighbours = 0;
  double pairs = 0;
  int beyond[4] = {};
  for (std::size_t i = 0; i < noise.size(); ++i) {
    const double value = noise[i] / deviation;
    sum += value;
    if (i > 0) neighbours += value * noise[i - 1] / deviation;
    if (i >= 256) pairs += value * noise[i - 256] / deviation;  // one word makes both
    for (int k = 0; k < 4; ++k) beyond[k] += value > k ? 1 : 0;
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(neighbours / count, 0, 0.01);
  EXPECT_NEAR(pairs / count, 0, 0.01);
  EXPECT_NEAR(beyond[0] / count, 0.5, 0.005);
  EXPECT_NEAR(beyond[1] / count, 0.158655, 0.004);
  EXPECT_NEAR(beyond[2] / count, 0.022750, 0.002);
  EXPECT_NEAR(beyond[3] / count, 0.001350, 0.0004);
}

TEST(AddNoise, IsDrawnAnewForEachSampleAndChannel) {
  const Values params{{"snr", Floats{5, 15}}};
  const Sound sound = pattern(2, 700);
  const Sound first = changed("add_noise", params, sound, 4);
  EXPECT_EQ(first.values, changed("add_noise", params, sound, 4).values);
  EXPECT_NE(first.values, changed("add_noise", params, sound, 5).values);
  Sound twice = silence(2, 100);
  std::fill(twice.values.begin(), twice.values.end(), 0.5F);
  twice = changed("add_noise", params, twice);
  EXPECT_FALSE(
      std::equal(twice.channel(0).begin(), twice.channel(0).end(), twice.channel(1).begin()));
}

TEST(AddNoise, LeavesSilenceAlone) {
  EXPECT_THAT(changed("add_noise", {{"snr", Floats{5}}}, silence(1, 100)).values, Each(0.0F));
  EXPECT_EQ(changed("add_noise", {{"snr", Floats{5}}}, silence(1, 0)).length, 0);
}

TEST(SpeedPerturbation, ChangesLengthAndPitch) {
  const Sound fast = changed("speed_perturbation", {{"factors", Floats{1.25}}}, sine(1000, 10000));
  ASSERT_EQ(fast.length, 8000);
  const Sound expected = sine(1250, 8000);
  for (std::size_t i = 100; i < 7900; ++i)
    ASSERT_NEAR(fast.values[i], expected.values[i], 2e-3) << i;
}

TEST(SpeedPerturbation, MakesSomethingOfEveryLength) {
  for (const double factor : {0.1, 0.5, 0.93, 1.07, 3.0, 10.0}) {
    for (const std::int64_t length : {0, 1, 2, 3, 15, 16, 17, 333}) {
      SCOPED_TRACE(std::to_string(factor) + " " + std::to_string(length));
      const Sound sound =
          changed("speed_perturbation", {{"factors", Floats{factor}}}, pattern(2, length));
      for (const float value : sound.values) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(SpeedPerturbation, DoesTheSameInTheMiddleOfALongSound) {
  // Longer than what is resampled at once, of which the edges are made another way.
  const Sound sound = pattern(1, 9 * 256 * 3);
  const Sound slow = changed("speed_perturbation", {{"factors", Floats{0.9}}}, sound);
  const std::int64_t first = 9 * 300;
  Sound part = silence(1, 9 * 20);
  std::copy_n(sound.values.begin() + first, part.values.size(), part.values.begin());
  const Sound slow_part = changed("speed_perturbation", {{"factors", Floats{0.9}}}, part);
  for (std::size_t i = 20; i < 180; ++i) EXPECT_EQ(slow_part.values[i], slow.values[3000 + i]);
}

TEST(SpeedPerturbation, DrawsOneOfItsFactors) {
  const Values params{{"factors", Floats{0.5, 1, 2}}};
  std::set<std::int64_t> lengths;
  for (std::uint64_t key = 0; key < 60; ++key) {
    const Sound sound = changed("speed_perturbation", params, pattern(1, 100), key);
    lengths.insert(sound.length);
    EXPECT_EQ(sound.values, changed("speed_perturbation", params, pattern(1, 100), key).values);
  }
  EXPECT_THAT(lengths, ElementsAre(50, 100, 200));
}

TEST(SpeedPerturbation, SaysWhatLengthsThereMayBe) {
  const AudioFormat in{.sample_rate = 16000, .channels = 1, .length = 100, .max_length = 100};
  const auto two = made<AudioOp>("speed_perturbation", {{"factors", Floats{0.5, 2}}})->output(in);
  EXPECT_EQ(two->length, -1);
  EXPECT_EQ(two->max_length, 200);
  const auto one = made<AudioOp>("speed_perturbation", {{"factors", Floats{2}}})->output(in);
  EXPECT_EQ(one->length, 50);
}

TEST(SpeedPerturbation, SaysALengthThoughNoMemoryHoldsIt) {
  AudioFormat sound{.sample_rate = 768000, .channels = 64, .max_length = std::int64_t{1} << 40};
  for (int stage = 0; stage < 30; ++stage) {
    const auto longer =
        made<AudioOp>("speed_perturbation", {{"factors", Floats{0.1}}})->output(sound);
    ASSERT_TRUE(longer);
    EXPECT_GE(longer->max_length, sound.max_length);
    sound = *longer;
  }
  EXPECT_GT(sound.most_bytes(), std::uint64_t{1} << 56);
}

TEST(SpeedPerturbation, BoundsItsFilters) {
  std::vector<double> odd(60);
  for (std::size_t i = 0; i < odd.size(); ++i) odd[i] = 0.9 + 0.00101 * static_cast<double>(i);
  EXPECT_THAT(output_refusal("speed_perturbation", {{"factors", odd}}, {.sample_rate = 191999}),
              HasSubstr("take fewer factors, of two decimals"));
  EXPECT_THAT(output_refusal("speed_perturbation", {{"factors", Floats{0.1}}}, {.sample_rate = 9}),
              HasSubstr("leaves nothing of 9 Hz"));
}

}  // namespace
}  // namespace spdld::transform

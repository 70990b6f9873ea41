// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/transform/sound/sounds.h"

namespace spdld::transform {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

const Texts kSpectra{"spectrogram", "mel_spectrogram", "log_mel", "mfcc"};

std::vector<float> frame(const Sound& spectrum, std::int64_t at) {
  std::vector<float> values;
  for (int row = 0; row < spectrum.bins; ++row)
    values.push_back(spectrum.values[static_cast<std::size_t>(row * spectrum.length + at)]);
  return values;
}

TEST(Spectra, HaveTheLengthThatTheyFollowFrom) {
  for (const std::int64_t samples : {201, 400, 401, 599, 600, 3200, 3201, 16000}) {
    EXPECT_EQ(changed("spectrogram", {}, pattern(1, samples)).length, 1 + samples / 200);
    EXPECT_EQ(changed("log_mel", {}, pattern(1, samples)).length, samples / 160);
    EXPECT_EQ(changed("mfcc", {{"hop_length", std::int64_t{7}}}, pattern(2, samples)).length,
              1 + samples / 7);
  }
  const Values whole{{"center", false}, {"pad", std::int64_t{5}}};
  EXPECT_EQ(changed("spectrogram", whole, pattern(1, 390)).length, 1);
  EXPECT_EQ(changed("spectrogram", whole, pattern(1, 589)).length, 1);
  EXPECT_EQ(changed("spectrogram", whole, pattern(1, 590)).length, 2);
}

TEST(Spectra, HaveTheFormatThatWasAnnounced) {
  const AudioFormat in{.sample_rate = 16000, .channels = 0, .length = -1, .max_length = 32000};
  const auto out = made<AudioOp>("log_mel", {{"n_mels", std::int64_t{128}}})->output(in);
  ASSERT_TRUE(out);
  EXPECT_EQ(
      *out,
      (AudioFormat{
          .sample_rate = 16000, .channels = 0, .length = -1, .bins = 128, .max_length = 200}));
  EXPECT_EQ(made<AudioOp>("mfcc", {})->output(in)->bins, 40);
  EXPECT_EQ(made<AudioOp>("spectrogram", {})->output(in)->max_length, 161);
  EXPECT_EQ(made<AudioOp>("mel_spectrogram", {})->output({.sample_rate = 8000})->max_length, -1);
}

TEST(Spectra, PeakAtTheFrequencyOfATone) {
  const Sound spectrum = changed("spectrogram", {}, sine(2000, 8000));
  const std::vector<float> middle = frame(spectrum, 20);
  EXPECT_EQ(std::max_element(middle.begin(), middle.end()) - middle.begin(), 50);
  EXPECT_NEAR(middle[50], 50 * 50, 1);  // amplitude 0.5 by half the window's sum
  EXPECT_LT(middle[60], 1e-4);
}

TEST(Spectra, OfSilenceAreFinite) {
  EXPECT_THAT(changed("spectrogram", {}, silence(2, 1000)).values, Each(0.0F));
  EXPECT_THAT(changed("mel_spectrogram", {}, silence(1, 1000)).values, Each(0.0F));
  EXPECT_THAT(changed("log_mel", {}, silence(1, 1000)).values,
              Each(::testing::FloatNear(-1.5F, 1e-6F)));
  const Sound decibels =
      changed("amplitude_to_db", {}, changed("spectrogram", {}, silence(1, 500)));
  EXPECT_THAT(decibels.values, Each(::testing::FloatNear(-100, 1e-4F)));
  for (const float value : changed("mfcc", {}, silence(1, 1000)).values) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Spectra, OfTheLoudestSamplesAreFinite) {
  Sound loud = pattern(1, 4000);
  for (float& sample : loud.values) sample *= 1e15F;
  for (const std::string& op : kSpectra) {
    for (const float value : changed(op, {}, loud).values) EXPECT_TRUE(std::isfinite(value)) << op;
  }
}

TEST(Spectra, OfAChannelAreThoseOfItAlone) {
  const Sound both = pattern(2, 3000);
  for (const std::string op : {"spectrogram", "mel_spectrogram"}) {
    const Sound spectra = changed(op, {}, both);
    for (int c = 0; c < 2; ++c) {
      Sound alone = silence(1, 3000);
      std::copy_n(both.channel(c).data(), 3000, alone.values.data());
      const Sound spectrum = changed(op, {}, alone);
      EXPECT_TRUE(
          std::equal(spectrum.values.begin(), spectrum.values.end(), spectra.channel(c).begin()));
    }
  }
}

TEST(Spectra, OfAFrameDoNotDependOnItsPlace) {
  const Values params{{"hop_length", std::int64_t{100}}};
  const Sound sound = pattern(1, 6000);
  const Sound spectrum = changed("spectrogram", params, sound);
  for (const std::int64_t first : {3, 10, 17}) {
    Sound later = silence(1, 6000 - first * 100);
    std::copy(sound.values.begin() + first * 100, sound.values.end(), later.values.begin());
    const Sound moved = changed("spectrogram", params, later);
    EXPECT_EQ(frame(moved, 9), frame(spectrum, 9 + first));
  }
}

TEST(Spectra, AreTheSameEachTime) {
  for (const std::string& op : kSpectra) {
    const Sound sound = pattern(2, 5000);
    MadeStep step(op, {}, format_of(sound));
    Sound first = sound;
    Sound second = sound;
    ASSERT_TRUE(step.run(first, 1).ok());
    ASSERT_TRUE(step.run(second, 2).ok());
    EXPECT_EQ(first.values, second.values) << op;
  }
}

TEST(Spectra, SeeWhatPadModeSaysBeyondTheEnds) {
  const Sound sound = pattern(1, 50);
  const auto first = [&](const std::string& mode) {
    return frame(changed("spectrogram", {{"n_fft", std::int64_t{40}}, {"pad_mode", mode}}, sound),
                 0);
  };
  const auto by_hand = [&](const auto& before) {
    Sound whole = silence(1, 40);
    for (int i = 0; i < 20; ++i) {
      whole.values[static_cast<std::size_t>(i)] = before(20 - i);
      whole.values[static_cast<std::size_t>(20 + i)] = sound.values[static_cast<std::size_t>(i)];
    }
    return changed("spectrogram", {{"n_fft", std::int64_t{40}}, {"center", false}}, whole).values;
  };
  EXPECT_EQ(first("reflect"),
            by_hand([&](int i) { return sound.values[static_cast<std::size_t>(i)]; }));
  EXPECT_EQ(first("replicate"), by_hand([&](int) { return sound.values[0]; }));
  EXPECT_EQ(first("constant"), by_hand([&](int) { return 0.0F; }));
}

TEST(Spectra, RefuseASoundThatIsTooShortToReflect) {
  for (const std::string& op : kSpectra) {
    for (const std::int64_t samples : {0, 1, 200}) {
      const Status refused = data_error(op, {}, silence(1, samples));
      EXPECT_EQ(refused.code(), Code::kInvalidArgument) << op << samples;
      EXPECT_THAT(refused.message(), HasSubstr("at least 201; put 'pad_or_trim' before"));
    }
    EXPECT_TRUE(data_error(op, {}, silence(1, 201)).ok()) << op;
    EXPECT_THAT(output_refusal(op, {}, format_of(silence(1, 100))),
                HasSubstr("a sound of 100 samples is too short"));
  }
}

TEST(Spectra, RefuseASoundShorterThanAFrame) {
  EXPECT_THAT(data_error("spectrogram", {{"center", false}}, silence(1, 399)).message(),
              HasSubstr("a frame (n_fft) needs at least 400"));
  EXPECT_THAT(
      data_error("spectrogram", {{"pad_mode", std::string("replicate")}}, silence(1, 0)).message(),
      HasSubstr("at least 1;"));
}

TEST(Spectra, OfNothingBetweenZerosAreZeros) {
  const Values zeros{{"pad_mode", std::string("constant")}};
  EXPECT_EQ(changed("spectrogram", zeros, silence(1, 0)).values, std::vector<float>(201, 0.0F));
}

TEST(Spectra, RefuseSamplesThatAreNoNumbers) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::string& op : kSpectra) {
      for (const std::size_t at : {0, 777, 3999}) {
        Sound sound = pattern(1, 4000);
        sound.values[at] = bad;
        const Status refused = data_error(op, {}, sound);
        EXPECT_EQ(refused.code(), Code::kDataLoss) << op << " " << at << " " << bad;
        EXPECT_THAT(refused.message(), HasSubstr("no finite number"));
      }
    }
  }
}

TEST(Spectra, WorkAgainAfterAnError) {
  const Sound sound = pattern(1, 4000);
  MadeStep step("log_mel", {}, {.sample_rate = 16000, .channels = 1});
  Sound bad = sound;
  bad.values[50] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(step.run(bad).ok());
  Sound good = sound;
  ASSERT_TRUE(step.run(good).ok());
  EXPECT_EQ(good.values, changed("log_mel", {}, sound).values);
}

TEST(SpectrumOps, NeedARateThatIsKnown) {
  for (const std::string op : {"mel_spectrogram", "log_mel", "mfcc"}) {
    EXPECT_EQ(output_refusal(op, {}, {}), op + ": the sample rate differs from file to file: write "
                                               "'decode_audio: {sample_rate: 16000}'");
  }
  EXPECT_EQ(output_refusal("spectrogram", {}, {}), "accepted");
  EXPECT_THAT(output_refusal("log_mel", {}, {.sample_rate = 44100}),
              HasSubstr("this is at 44100; write 'decode_audio: {sample_rate: 16000}'"));
}

TEST(SpectrumOps, NeedWhatTheyWorkOn) {
  const AudioFormat spectrum{.sample_rate = 16000, .channels = 1, .length = 30, .bins = 80};
  for (const std::string& op : kSpectra) {
    EXPECT_THAT(output_refusal(op, {}, spectrum), HasSubstr(op + ": it works on samples"));
  }
  EXPECT_THAT(output_refusal("amplitude_to_db", {}, {.sample_rate = 16000}),
              HasSubstr("put 'spectrogram' or 'mel_spectrogram' before it"));
}

TEST(SpectrumOps, RefuseBandsBeyondTheSound) {
  const AudioFormat in{.sample_rate = 16000, .channels = 1};
  EXPECT_THAT(output_refusal("mel_spectrogram", {{"f_max", 8001.0}}, in),
              HasSubstr("nothing above 8000 Hz; lower f_max"));
  EXPECT_THAT(output_refusal("mfcc", {{"f_min", 8000.0}}, in), HasSubstr("f_min must be less"));
}

TEST(SpectrumOps, RefuseParametersThatDoNotFit) {
  const auto integer = [](std::int64_t value) { return ParamValue(value); };
  EXPECT_THAT(refusal("spectrogram", {{"n_fft", integer(401)}}),
              HasSubstr("401 is none; the nearest one is 400"));
  EXPECT_THAT(refusal("mfcc", {{"n_fft", integer(74)}}), HasSubstr("the nearest one is 72"));
  EXPECT_THAT(refusal("spectrogram", {{"win_length", integer(401)}}),
              HasSubstr("win_length is 401, but a frame has n_fft = 400 samples"));
  EXPECT_THAT(refusal("mel_spectrogram", {{"power", 1.5}}), HasSubstr("power must be 1"));
  EXPECT_THAT(refusal("log_mel", {{"n_mels", integer(100)}}), HasSubstr("must be 80, or 128"));
  EXPECT_THAT(refusal("mfcc", {{"n_mels", integer(30)}}),
              HasSubstr("n_mfcc is 40, more than the 30 bands"));
}

}  // namespace
}  // namespace spdld::transform

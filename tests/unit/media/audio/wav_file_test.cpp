// SPDX-License-Identifier: Apache-2.0
#include "media/audio/wav_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/media/audio/sound_reference.h"
#include "tests/unit/media/audio/wav_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> samples_of(const WavRecipe& recipe) {
  std::vector<int> numbers;
  for (const float value : sound_of(make_wav(recipe)).values)
    numbers.push_back(static_cast<int>(value * 32768));
  return numbers;
}

Status refusal_of(const WavRecipe& recipe) { return test::refusal_of(make_wav(recipe)); }

constexpr std::int64_t kAllOnes = 0xFFFFFFFF;

TEST(WavFile, OfARecordingWithoutALengthEndsWithItsBytes) {
  for (const std::int64_t unknown : {std::int64_t{0x7FFFF000}, std::int64_t{0x80000000}, kAllOnes})
    EXPECT_THAT(samples_of({.data_bytes = unknown}), ElementsAre(1, 2, 3)) << unknown;
  EXPECT_THAT(samples_of({.data_bytes = 0, .riff_bytes = 0}), ElementsAre(1, 2, 3));
  EXPECT_THAT(samples_of({.data_bytes = 0, .riff_bytes = kAllOnes}), ElementsAre(1, 2, 3));
}

TEST(WavFile, EndsWhereItsHeaderSays) {
  EXPECT_THAT(samples_of({.data_bytes = 4, .after = chunk("LIST", "INFO")}), ElementsAre(1, 2));
}

TEST(WavFile, SkipsChunksThatItDoesNotKnow) {
  EXPECT_THAT(samples_of({.before = chunk("fact", "1234") + chunk("odd ", "12345")}),
              ElementsAre(1, 2, 3));
}

TEST(WavFile, DropsHalfASampleAtItsEnd) {
  EXPECT_THAT(samples_of({.data = std::string("\x01\x00\x02\x00\x03", 5)}), ElementsAre(1, 2));
}

TEST(WavFile, OfExtensibleFormatTellsItsSpeakers) {
  const std::string rest("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);
  const std::string extension = little(22, 2) + little(16, 2) + little(4, 4) + little(1, 2) + rest;
  const Bytes bytes = make_wav({.tag = 0xFFFE, .extension = extension});
  const auto wav = read_wav(bytes);
  ASSERT_TRUE(wav && *wav);
  EXPECT_EQ((*wav)->channel_mask, 4U);
  EXPECT_EQ((*wav)->samples(), 3);
  // Behind another GUID is something else.
  std::string other = extension;
  other.back() = '\x72';
  const auto unknown = read_wav(make_wav({.tag = 0xFFFE, .extension = other}));
  ASSERT_TRUE(unknown);
  EXPECT_FALSE(*unknown);
}

TEST(WavFile, LeavesSoundThatIsNoPcmToFfmpeg) {
  const MediaMaker maker;
  for (const char* codec : {"libmp3lame"}) {
    const Bytes bytes = maker.make(some_sound(1, 44100) + "-c:a " + codec, "a.wav");
    const auto wav = read_wav(bytes);
    ASSERT_TRUE(wav);
    EXPECT_FALSE(*wav);
    EXPECT_EQ(sound_of(bytes).values, ffmpeg_samples(maker, "a.wav", 1)) << codec;
  }
}

TEST(WavFile, ThatPromisesAHundredHoursIsCutOff) {
  const Status refused = refusal_of(WavRecipe{.data_bytes = 1'500'000'000});
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("its header promises 1500000000 bytes of samples, and "
                                           "6 follow"));
}

TEST(WavFile, WithoutSamplesIsRefused) {
  const Status refused = refusal_of(WavRecipe{.data = ""});
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_EQ(refused.message(), "it has no samples");
}

TEST(WavFile, ThatContradictsItselfIsRefused) {
  EXPECT_THAT(refusal_of(WavRecipe{.frame_bytes = 3}).message(),
              HasSubstr("it says that 1 sample of 16 bits take 3 bytes"));
  EXPECT_THAT(refusal_of(WavRecipe{.channels = 0, .frame_bytes = 0}).message(),
              HasSubstr("it has no channels"));
  EXPECT_THAT(refusal_of(WavRecipe{.rate = 0}).message(), HasSubstr("its sample rate is 0"));
  EXPECT_THAT(refusal_of(WavRecipe{.rate = 4'000'000'000}).message(),
              HasSubstr("its sample rate is 4000000000"));
  EXPECT_THAT(refusal_of(WavRecipe{.rate = 1'000'000}).message(),
              HasSubstr("its sample rate is 1000000 Hz"));
  EXPECT_THAT(refusal_of(WavRecipe{.bits = 40, .frame_bytes = 5}).message(),
              HasSubstr("its samples have 40 bits"));
  EXPECT_THAT(refusal_of(WavRecipe{.tag = 0xFFFE}).message(),
              HasSubstr("its extensible format is cut off"));
}

TEST(WavFile, IsRefusedWhereverItIsCutOff) {
  const Bytes whole = make_wav({});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(test::refusal_of(std::span(whole).first(size)).ok()) << size;
}

TEST(WavFile, OfTooManyChannelsIsRefused) {
  const Status refused =
      refusal_of(WavRecipe{.channels = 9, .frame_bytes = 18, .data = std::string(36, '\1')});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.message(), "it has 9 channels, and decode_audio.max_channels is 8");
}

TEST(WavFile, LongerThanTheLimitIsRefused) {
  const Bytes bytes = make_wav({.data = std::string(8001 * 2, '\1')});
  const Status refused = test::refusal_of(bytes, {.stream = {}, .max_seconds = 1});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.message(), "it is longer than decode_audio.max_seconds, which is 1");
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "media/audio/audio_reader.h"
#include "tests/unit/media/audio/sound_reference.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

TEST(AudioFailures, FilesThatNameOthersAreRefused) {
  const MediaMaker maker;
  maker.make(some_sound(1), "a.wav");
  for (const std::string& text :
       {"#EXTM3U\n#EXTINF:1,\n" + maker.path_of("a.wav") + "\n",
        "ffconcat version 1.0\nfile '" + maker.path_of("a.wav") + "'\n"}) {
    const Status refused = refusal_of(bytes_of(text));
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("which names other files"));
  }
}

TEST(AudioFailures, WhatIsNoSoundIsRefused) {
  const MediaMaker maker;
  EXPECT_EQ(refusal_of(bytes_of("")).code(), Code::kDataLoss);
  EXPECT_EQ(refusal_of(bytes_of(std::string(3000, 'x'))).code(), Code::kInvalidArgument);
  const Status silent = refusal_of(maker.make(moving_pictures(5) + "-c:v mpeg4", "a.mp4"));
  EXPECT_EQ(silent.code(), Code::kInvalidArgument);
  EXPECT_EQ(silent.message(), "it has no stream of sound that is decoded");
  EXPECT_EQ(refusal_of(maker.make(some_sound(1) + "-c:a adpcm_ima_wav", "b.wav")).message(),
            "it has no stream of sound that is decoded, but one of adpcm_ima_wav: convert it, "
            "'ffmpeg -i FILE FILE.flac'");
}

TEST(AudioFailures, CoverArtIsNoSound) {
  const MediaMaker maker;
  maker.make("-f lavfi -i color=red:s=32x32 -frames:v 1", "cover.png");
  for (const auto& [codec, name] : std::vector<std::pair<std::string, std::string>>{
           {"libmp3lame", "a.mp3"}, {"aac", "a.m4a"}, {"flac", "a.flac"}}) {
    const Bytes bytes = maker.make(
        some_sound(1) +
            "-i cover.png -map 1:v -map 0:a -c:v png -disposition:v attached_pic -c:a " + codec,
        name);
    const Sound sound = sound_of(bytes);
    EXPECT_EQ(sound.values, ffmpeg_samples(maker, name, 1)) << name;
  }
}

// One stream for each of the languages, each a tone of another pitch.
Bytes in_languages(const MediaMaker& maker, const std::vector<std::string>& languages) {
  std::string inputs;
  std::string maps;
  for (std::size_t i = 0; i < languages.size(); ++i) {
    inputs += "-f lavfi -i sine=frequency=" + std::to_string(200 * (i + 1)) + ":duration=0.5 ";
    maps += "-map " + std::to_string(i) + ":a ";
    if (!languages[i].empty())
      maps += "-metadata:s:a:" + std::to_string(i) + " language=" + languages[i] + " ";
  }
  return maker.make(inputs + maps + "-disposition:a 0 -disposition:a:1 default -c:a flac", "a.mkv");
}

TEST(AudioStreams, AreChosenByNumberLanguageOrDefault) {
  const MediaMaker maker;
  const Bytes bytes = in_languages(maker, {"eng", "deu", "fra"});
  const auto of = [&](const std::string& choice) {
    AudioOptions options;
    options.stream = *StreamChoice::parse(choice);
    return sound_of(bytes, nullptr, options).values;
  };
  const auto expected = [&](int stream) {
    return ffmpeg_samples(maker, "a.mkv", 1, "-map -0 -map 0:" + std::to_string(stream));
  };
  EXPECT_EQ(of("best"), expected(1));
  EXPECT_EQ(of("0"), expected(0));
  EXPECT_EQ(of("2"), expected(2));
  EXPECT_EQ(of("fra"), expected(2));
  EXPECT_NE(of("0"), of("2"));
}

TEST(AudioStreams, BestIsOfTheDefaultsTheOneWithTheMostChannels) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(
      some_sound(0.2) + some_sound(0.3) + some_sound(0.4) +
          "-map 0:a -map 1:a -map 2:a -ac:a:0 1 -ac:a:1 2 -ac:a:2 6 -disposition:a:0 default "
          "-disposition:a:1 default -disposition:a:2 0 -c:a flac",
      "a.mkv");
  EXPECT_EQ(sound_of(bytes).values, ffmpeg_samples(maker, "a.mkv", 2, "-map -0 -map 0:1"));
}

TEST(AudioStreams, ThatAreMissingAreRefusedByWhatThereIs) {
  const MediaMaker maker;
  const Bytes bytes = in_languages(maker, {"eng", "deu"});
  for (const auto& [choice, shown] :
       std::vector<std::pair<std::string, std::string>>{{"7", "7"}, {"ita", "'ita'"}}) {
    AudioOptions options;
    options.stream = *StreamChoice::parse(choice);
    const Status refused = refusal_of(bytes, options);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_EQ(refused.message(),
              "its streams of sound are 0 'eng', 1 'deu', and decode_audio.stream is " + shown);
  }
}

TEST(AudioStreams, OfAWavFileThereIsOne) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(some_sound(0.1, 8000), "a.wav");
  AudioOptions options;
  options.stream = *StreamChoice::parse("0");
  EXPECT_FALSE(sound_of(bytes, nullptr, options).values.empty());
  for (const std::string choice : {"1", "eng"}) {
    options.stream = *StreamChoice::parse(choice);
    EXPECT_EQ(refusal_of(bytes, options).message().substr(0, 54),
              "its streams of sound are 0, and decode_audio.stream is");
  }
}

TEST(AudioStreams, AHundredOfThemAreRead) {
  const MediaMaker maker;
  const Bytes bytes = in_languages(maker, std::vector<std::string>(100));
  EXPECT_EQ(sound_of(bytes).values, ffmpeg_samples(maker, "a.mkv", 1, "-map -0 -map 0:1"));
}

TEST(AudioStreams, ChoicesAreChecked) {
  EXPECT_EQ(StreamChoice::parse("eng")->language, "eng");
  EXPECT_EQ(StreamChoice::parse("12")->number, 12);
  for (const char* text : {"", "-1", "1.5", "english", "ENG", "99999999999"})
    EXPECT_EQ(StreamChoice::parse(text).error().code(), Code::kInvalidArgument) << text;
}

TEST(AudioFailures, SoundThatIsTooLongIsRefused) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(some_sound(3) + "-c:a flac", "a.flac");
  AudioOptions options;
  options.max_seconds = 2.9;
  const Status refused = refusal_of(bytes, options);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.message(), "it is longer than decode_audio.max_seconds, which is 2.9");
  options.max_seconds = 3;
  EXPECT_TRUE(refusal_of(bytes, options).ok());
}

TEST(AudioFailures, SoundOfTooManyChannelsIsRefused) {
  const MediaMaker maker;
  AudioOptions options;
  options.max_channels = 1;
  for (const auto& [codec, name] : std::vector<std::pair<std::string, std::string>>{
           {"flac", "a.flac"}, {"aac -f adts", "a.aac"}, {"libmp3lame", "a.mp3"}}) {
    const Status refused =
        refusal_of(maker.make(some_sound(1) + "-ac 2 -c:a " + codec, name), options);
    EXPECT_EQ(refused.code(), Code::kResourceExhausted) << name;
    EXPECT_EQ(refused.message(), "it has 2 channels, and decode_audio.max_channels is 1");
  }
}

TEST(AudioFailures, SoundThatHasNoRoomSaysWhatItTakes) {
  const MediaMaker maker;
  const AudioOptions options;
  AudioReader reader(options);
  for (const char* name : {"a.flac", "a.wav"}) {
    const Bytes bytes = maker.make(some_sound(20), name);
    Sound sound;
    auto needs = reader.read(bytes, nullptr, sound, 500'000);
    ASSERT_TRUE(needs);
    EXPECT_GT(*needs, 500'000U);
    // It comes to an end.
    int rounds = 0;
    while (needs && *needs > 0 && ++rounds < 30) needs = reader.read(bytes, nullptr, sound, *needs);
    ASSERT_TRUE(needs) << needs.error().message();
    EXPECT_EQ(*needs, 0U);
    EXPECT_EQ(sound.length, 320000);
  }
}

TEST(AudioFailures, TagsBehindTheLastFrameAreNoDamage) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(some_sound(1) + "-c:a libmp3lame", "a.mp3");
  const Bytes tag = bytes_of("APETAGEX" + std::string(300, 'a'));
  Bytes tagged = bytes;
  tagged.insert(tagged.end(), tag.begin(), tag.end());
  maker.write("b.mp3", tagged);
  EXPECT_EQ(sound_of(tagged).values, ffmpeg_samples(maker, "b.mp3", 1));
}

TEST(AudioFailures, FilesThatEndInAFrameAreRefused) {
  const MediaMaker maker;
  for (const auto& [codec, name] : std::vector<std::pair<std::string, std::string>>{
           {"flac", "a.flac"}, {"aac", "a.m4a"}, {"alac", "b.m4a"}}) {
    const Bytes bytes = maker.make(some_sound(1) + "-movflags faststart -c:a " + codec, name);
    for (const std::size_t missing : {30, 300, 2000}) {
      const Status refused = refusal_of(std::span(bytes).first(bytes.size() - missing));
      EXPECT_EQ(refused.code(), Code::kDataLoss) << name << " " << missing;
    }
  }
}

TEST(AudioFailures, SoundThatChangesWithinIsRefused) {
  const MediaMaker maker;
  Bytes bytes = maker.make(some_sound(1, 44100) + "-ac 2 -f adts", "a.aac");
  const Bytes more = maker.make(some_sound(1, 22050) + "-ac 1 -f adts", "b.aac");
  bytes.insert(bytes.end(), more.begin(), more.end());
  const Status refused = refusal_of(bytes);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_EQ(refused.message(),
            "its sound changes within: it has 2 channels at 44100 Hz, and then 1 channel at 22050 "
            "Hz");
}

TEST(AudioFailures, AReaderIsAsGoodAsNewAfterDamage) {
  const MediaMaker maker;
  const AudioOptions options;
  AudioReader reader(options);
  for (const auto& [codec, name] : std::vector<std::pair<std::string, std::string>>{
           {"flac", "a.flac"}, {"libmp3lame", "a.mp3"}, {"aac", "a.m4a"}, {"libopus", "a.opus"}}) {
    const Bytes bytes = maker.make(some_sound(1, 48000) + "-c:a " + codec, name);
    Bytes damaged = bytes;
    for (std::size_t i = damaged.size() / 2; i < damaged.size() / 2 + 200; ++i)
      damaged[i] ^= std::byte{0x5A};
    Sound sound;
    static_cast<void>(reader.read(damaged, nullptr, sound, kSoundRoom));
    ASSERT_TRUE(reader.read(bytes, nullptr, sound, kSoundRoom)) << name;
    sound.values.resize(static_cast<std::size_t>(sound.length));
    EXPECT_EQ(sound.values, ffmpeg_samples(maker, name, 1)) << name;
  }
}

TEST(AudioFailures, AReaderForgetsTheFormatThatSoundChangedTo) {
  const MediaMaker maker;
  const std::string plain = "-c:a libmp3lame -write_xing 0 -id3v2_version 0";
  const Bytes good = maker.make(some_sound(1, 48000) + plain, "a.mp3");
  const Bytes other = maker.make(some_sound(1, 32000) + plain, "b.mp3");
  Bytes changing = good;
  changing.insert(changing.end(), other.begin(), other.end());
  const AudioOptions options;
  AudioReader reader(options);
  Sound sound;
  EXPECT_FALSE(reader.read(changing, nullptr, sound, kSoundRoom));
  const auto read = reader.read(good, nullptr, sound, kSoundRoom);
  EXPECT_TRUE(read) << read.error().message();
  EXPECT_EQ(sound.sample_rate, 48000);
}

}  // namespace
}  // namespace spdld::media::test

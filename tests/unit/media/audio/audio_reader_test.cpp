// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/media/audio/sound_reference.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

struct Made {
  std::string codec;  // as ffmpeg is told it
  std::string name;
  int rate = 44100;
  int channels = 2;
};

std::string sound_for(const Made& made) {
  const std::string second = "|0.3*cos(2*PI*(900-100*t)*t)";
  std::string expressions = "0.4*sin(2*PI*(300+200*t)*t)+0.1*sin(5000*t)+0.05*(random(0)-0.5)";
  for (int c = 1; c < made.channels; ++c) expressions += second;
  return "-f lavfi -i \"aevalsrc='" + expressions + "':s=" + std::to_string(made.rate) +
         ":d=1.7\" -bitexact -c:a " + made.codec + " ";
}

class EverySound : public ::testing::TestWithParam<Made> {};

TEST_P(EverySound, HasTheSamplesThatFfmpegDecodes) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(sound_for(GetParam()), GetParam().name);
  const Sound sound = sound_of(bytes);
  EXPECT_EQ(sound.channels, GetParam().channels);
  EXPECT_EQ(sound.sample_rate, GetParam().rate);
  const std::vector<float> expected = ffmpeg_samples(maker, GetParam().name, GetParam().channels);
  ASSERT_EQ(sound.values.size(), expected.size());
  EXPECT_EQ(sound.values, expected);
}

TEST_P(EverySound, IsTheSameWhateverWasDecodedBefore) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(sound_for(GetParam()), GetParam().name);
  const Bytes other = maker.make(some_sound(0.3) + "-c:a libmp3lame", "other.mp3");
  const AudioOptions options;
  AudioReader reader(options);
  std::vector<Sound> sounds(3);
  for (Sound& sound : sounds) {
    ASSERT_TRUE(reader.read(bytes, nullptr, sound, kSoundRoom));
    sound.values.resize(static_cast<std::size_t>(sound.channels * sound.length));
    if (&sound == &sounds[1]) {
      Sound between;
      ASSERT_TRUE(reader.read(other, nullptr, between, kSoundRoom));
    }
  }
  EXPECT_EQ(sounds[0].values, sounds[1].values);
  EXPECT_EQ(sounds[0].values, sounds[2].values);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, EverySound,
    ::testing::Values(
        Made{"pcm_u8", "u8.wav"}, Made{"pcm_s16le", "s16.wav"}, Made{"pcm_s24le", "s24.wav"},
        Made{"pcm_s32le", "s32.wav", 48000, 1}, Made{"pcm_f32le", "f32.wav"},
        Made{"pcm_f64le", "f64.wav"}, Made{"pcm_alaw", "alaw.wav", 8000, 1},
        Made{"pcm_mulaw", "mulaw.wav", 8000, 1}, Made{"pcm_s16le", "six.wav", 48000, 6},
        Made{"pcm_s16le -rf64 always", "long.wav"}, Made{"pcm_s16le", "w64.w64"},
        Made{"flac", "a.flac"}, Made{"flac -sample_fmt s32", "deep.flac", 96000},
        Made{"libmp3lame -b:a 128k", "a.mp3"}, Made{"libmp3lame -q:a 4", "vbr.mp3", 16000, 1},
        Made{"libmp3lame -write_xing 0", "bare.mp3"}, Made{"mp2", "a.mp2"}, Made{"aac", "a.m4a"},
        Made{"aac -f adts", "a.aac", 48000, 1}, Made{"alac", "alac.m4a"},
        Made{"libopus", "a.opus", 48000}, Made{"libopus", "webm.webm", 48000, 1},
        Made{"libvorbis", "a.ogg"}, Made{"libvorbis", "v.webm"}, Made{"flac", "in.mkv"},
        Made{"flac", "in.ogg"}, Made{"ac3", "a.mkv", 48000, 6}, Made{"aac", "in.ts", 44100, 2},
        Made{"pcm_s16be", "a.mov"}),
    [](const auto& info) {
      std::string name = info.param.name + "_" + info.param.codec;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

}  // namespace
}  // namespace spdld::media::test

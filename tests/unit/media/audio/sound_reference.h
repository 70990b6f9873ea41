// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "media/audio/audio_reader.h"
#include "op/audio.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {

constexpr std::uint64_t kSoundRoom = std::uint64_t{1} << 32;

// What FFmpeg's command line makes of a file: float32 as [channels][length].
inline std::vector<float> ffmpeg_samples(const MediaMaker& maker, const std::string& name,
                                         int channels, const std::string& more = "") {
  const std::string text =
      maker.output("ffmpeg -nostdin -v error -i '" + name + "' -map 0:a:0 " + more + " -f f32le -");
  const auto count = static_cast<std::size_t>(channels);
  const std::size_t length = text.size() / sizeof(float) / count;
  std::vector<float> mixed(length * count);
  std::memcpy(mixed.data(), text.data(), mixed.size() * sizeof(float));
  std::vector<float> samples(mixed.size());
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t i = 0; i < length; ++i) samples[c * length + i] = mixed[i * count + c];
  }
  return samples;
}

// The samples of a sound, or none with a failed test.
inline Sound sound_of(std::span<const std::byte> bytes, const MediaClip* clip = nullptr,
                      const AudioOptions& options = {}) {
  AudioReader reader(options);
  Sound sound;
  const Result<std::uint64_t> read = reader.read(bytes, clip, sound, kSoundRoom);
  EXPECT_TRUE(read) << read.error().message();
  if (!read) return {};
  EXPECT_EQ(*read, 0U);
  EXPECT_EQ(reader.channels().count, sound.channels);
  sound.values.resize(static_cast<std::size_t>(sound.channels * sound.length));
  return sound;
}

// Why these bytes are no sound; ok: they are.
inline Status refusal_of(std::span<const std::byte> bytes, const AudioOptions& options = {}) {
  AudioReader reader(options);
  Sound sound;
  const Result<std::uint64_t> read = reader.read(bytes, nullptr, sound, kSoundRoom);
  return read ? Status() : read.error();
}

}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
// Damages good files of sound in every way that files get damaged, and sees that they either give
// samples or fail with a code of the data's, in bounded memory. Deterministic: mutant n is the same
// everywhere. SPDLD_MUTATIONS says how many of each format (200). What they came to is printed, by
// its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/audio/audio_reader.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

// Sound has tags at its end, too.
Bytes damaged(const Bytes& good, KeyedRng& rng) {
  if (rng.below(8) > 0) return mutant_of(good, rng);
  Bytes bytes = good;
  const std::size_t tail = std::min<std::size_t>(bytes.size(), 900);
  for (std::uint64_t i = 0, count = 1 + rng.below(4); i < count; ++i)
    bytes[bytes.size() - 1 - rng.below(tail)] = static_cast<std::byte>(rng.below(256));
  return bytes;
}

struct Outcome {
  Code code = Code::kOk;
  std::string reason;
  std::vector<float> samples;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

Outcome outcome_of(AudioReader& reader, const Bytes& bytes) {
  constexpr std::uint64_t kRoom = std::uint64_t{64} << 20;
  Sound sound;
  const Result<std::uint64_t> read = reader.read(bytes, nullptr, sound, kRoom);
  if (!read) return {read.error().code(), reason_of(read.error()), {}};
  if (*read > 0) return {Code::kOk, "takes more memory", {}};
  EXPECT_EQ(reader.channels().count, sound.channels);
  const auto count = static_cast<std::size_t>(sound.channels * sound.length);
  EXPECT_LE(sound.values.capacity() * sizeof(float), kRoom);
  return {Code::kOk, "ok", {sound.values.begin(), sound.values.begin() + count}};
}

void expect_survived(const std::vector<Bytes>& good, std::uint64_t seed) {
  const AudioOptions options{.stream = {}, .max_seconds = 20};
  AudioReader used(options);
  std::map<std::string, int> outcomes;
  for (int i = 0; i < mutations_wanted(200); ++i) {
    KeyedRng rng(mix64(seed, static_cast<std::uint64_t>(i)));
    const Bytes bytes = damaged(good[rng.below(good.size())], rng);
    const Outcome outcome = outcome_of(used, bytes);
    ++outcomes[outcome.reason];
    EXPECT_TRUE(outcome.code == Code::kOk || outcome.code == Code::kDataLoss ||
                outcome.code == Code::kInvalidArgument || outcome.code == Code::kResourceExhausted)
        << "mutant " << i << ": " << outcome.reason;
    // What a file comes to must not depend on the files before it.
    AudioReader fresh(options);
    const Outcome again = outcome_of(fresh, bytes);
    EXPECT_EQ(again.reason, outcome.reason) << "mutant " << i;
    EXPECT_TRUE(same(again.samples, outcome.samples)) << "mutant " << i;
  }
  for (const auto& [reason, count] : outcomes) std::cout << "  " << count << " " << reason << '\n';
  // A run in which nothing failed, or everything for one reason, has tested nothing.
  EXPECT_GE(outcomes.size(), 2U);
}

constexpr double kSeconds = 0.7;

TEST(AudioMutation, OfWavsNeverBreaksTheReader) {
  const MediaMaker maker;
  expect_survived({maker.make(some_sound(kSeconds) + "-c:a pcm_s16le", "a.wav"),
                   maker.make(some_sound(kSeconds) + "-ac 6 -c:a pcm_s24le", "b.wav"),
                   maker.make(some_sound(kSeconds) + "-c:a pcm_f32le -rf64 always", "c.wav"),
                   maker.make(some_sound(kSeconds) + "-c:a pcm_mulaw", "d.wav")},
                  0x776176);
}

TEST(AudioMutation, OfFlacsNeverBreaksTheReader) {
  const MediaMaker maker;
  expect_survived({maker.make(some_sound(kSeconds) + "-c:a flac", "a.flac"),
                   maker.make(some_sound(kSeconds) + "-ac 2 -c:a flac", "a.mkv"),
                   maker.make(some_sound(kSeconds) + "-c:a flac", "a.ogg")},
                  0x666c6163);
}

TEST(AudioMutation, OfMp3sNeverBreaksTheReader) {
  const MediaMaker maker;
  expect_survived({maker.make(some_sound(kSeconds) + "-c:a libmp3lame -q:a 5", "a.mp3"),
                   maker.make(some_sound(kSeconds) + "-c:a libmp3lame -write_xing 0", "b.mp3"),
                   maker.make(some_sound(kSeconds) + "-c:a mp2", "c.mp2")},
                  0x6d7033);
}

TEST(AudioMutation, OfAacsNeverBreaksTheReader) {
  const MediaMaker maker;
  expect_survived({maker.make(some_sound(kSeconds) + "-c:a aac", "a.m4a"),
                   maker.make(some_sound(kSeconds) + "-ac 2 -c:a aac -f adts", "a.aac"),
                   maker.make(some_sound(kSeconds) + "-c:a aac -movflags frag_keyframe", "b.m4a"),
                   maker.make(some_sound(kSeconds) + "-c:a alac", "c.m4a")},
                  0x616163);
}

TEST(AudioMutation, OfOggsNeverBreaksTheReader) {
  const MediaMaker maker;
  expect_survived({maker.make(some_sound(kSeconds, 48000) + "-c:a libopus", "a.opus"),
                   maker.make(some_sound(kSeconds, 48000) + "-c:a libopus", "a.webm"),
                   maker.make(some_sound(kSeconds) + "-c:a libvorbis", "a.ogg"),
                   maker.make(some_sound(kSeconds) + "-c:a libvorbis", "b.webm")},
                  0x6f6767);
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
// Damages good files of video and sound in every way that files get damaged, and sees that the
// prober either tells what holds together or fails with a code of the data's. Deterministic but for
// the encoders: mutant n is the same everywhere. SPDLD_MUTATIONS says how many of each format
// (200). What they came to is printed, by its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <string>

#include "base/rng.h"
#include "media/probe/prober.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

// What the index says must hold together, whatever the file says.
void expect_sound(const MediaFile& file, const Bytes& bytes) {
  EXPECT_FALSE(file.streams.empty());
  for (const MediaStream& stream : file.streams) {
    const StreamInfo& info = stream.info;
    EXPECT_GT(info.time_base.num, 0);
    EXPECT_GT(info.time_base.den, 0);
    ASSERT_NE(info.codec, nullptr);
    EXPECT_TRUE(std::is_sorted(stream.frame_pts.begin(), stream.frame_pts.end()));
    for (const MediaPacket& packet : stream.packets)
      EXPECT_LE(packet.offset + packet.size_bytes, bytes.size());
    if (info.kind == StreamInfo::Kind::kVideo) {
      EXPECT_LE(std::int64_t{info.codec->width} * info.codec->height, 1'000'000);
      continue;
    }
    EXPECT_GT(info.codec->sample_rate, 0);
    EXPECT_GT(info.codec->channels, 0);
    if (info.access == StreamInfo::Access::kPcm) {
      EXPECT_LE(
          info.pcm_offset + info.samples * static_cast<std::uint64_t>(info.codec->block_align),
          bytes.size());
    }
  }
}

void expect_survived(const std::vector<Bytes>& good, std::uint64_t seed) {
  // Mutated headers may claim anything: the limits keep the run short, as they would a daemon's.
  const MediaLimits limits{.max_packets = 100'000, .max_pixels = 1'000'000};
  std::map<std::string, int> outcomes;
  const int wanted = mutations_wanted(200);
  for (int i = 0; i < wanted; ++i) {
    KeyedRng rng(mix64(seed, static_cast<std::uint64_t>(i)));
    const Bytes bytes = mutant_of(good[rng.below(good.size())], rng);
    MemoryReader reader(bytes);
    const Result<MediaFile> file = probe(reader, limits);
    ++outcomes[file ? "ok"
                    : std::string(code_name(file.error().code())) + " " + reason_of(file.error())];
    if (file) {
      SCOPED_TRACE("mutant " + std::to_string(i));
      expect_sound(*file, bytes);
      continue;
    }
    const Code code = file.error().code();
    EXPECT_TRUE(code == Code::kDataLoss || code == Code::kInvalidArgument ||
                code == Code::kResourceExhausted)
        << "mutant " << i << ": " << file.error().message();
  }
  for (const auto& [reason, count] : outcomes) std::cout << "  " << count << " " << reason << '\n';
  // A run in which nothing failed, or everything for one reason, has tested nothing.
  EXPECT_GE(outcomes.size(), 2U);
}

const std::string kVideo = moving_pictures(20) + some_sound(0.8) + "-c:v libx264 -g 8 -bf 2 ";

TEST(DemuxMutation, OfMp4NeverBreaksTheProber) {
  const MediaMaker maker;
  expect_survived({maker.make(kVideo + "-c:a aac ", "end.mp4"),
                   maker.make(kVideo + "-c:a aac -movflags faststart ", "begin.mp4"),
                   maker.make(kVideo + "-c:a aac -movflags frag_keyframe+empty_moov ", "parts.mp4"),
                   maker.make("-ss 0.3 -i end.mp4 -c copy ", "cut.mp4"),
                   maker.make(some_sound(0.5) + "-c:a alac ", "a.m4a")},
                  0x6d7034);
}

TEST(DemuxMutation, OfMatroskaNeverBreaksTheProber) {
  const MediaMaker maker;
  expect_survived(
      {maker.make(kVideo + "-c:a libmp3lame ", "a.mkv"),
       maker.make(moving_pictures(20) + "-c:v libvpx-vp9 -cpu-used 8 ", "vp9.webm"),
       maker.make(moving_pictures(20) + some_sound(0.8) + "-c:v libvpx -c:a libopus ", "vp8.webm")},
      0x6d6b76);
}

TEST(DemuxMutation, OfTransportStreamsAndAviNeverBreaksTheProber) {
  const MediaMaker maker;
  expect_survived(
      {maker.make(kVideo + "-c:a aac ", "a.ts"),
       maker.make(moving_pictures(20) + some_sound(0.8) + "-c:v mpeg4 -bf 2 -c:a mp2 ", "a.avi")},
      0x747361);
}

TEST(DemuxMutation, OfSoundNeverBreaksTheProber) {
  const MediaMaker maker;
  const std::string sound = some_sound(0.6);
  expect_survived({maker.make(sound + "-c:a libmp3lame ", "a.mp3"), maker.make(sound, "a.aac"),
                   maker.make(sound + "-c:a flac ", "a.flac")},
                  0x736e64);
}

TEST(DemuxMutation, OfWavAndOggNeverBreaksTheProber) {
  const MediaMaker maker;
  const std::string sound = some_sound(0.6);
  expect_survived({maker.make(sound, "a.wav"),
                   maker.make(sound + "-ac 2 -c:a pcm_s24le -rf64 always ", "rf64.wav"),
                   maker.make(sound + "-c:a libopus ", "a.opus"),
                   maker.make(sound + "-c:a libvorbis ", "a.ogg")},
                  0x776176);
}

}  // namespace
}  // namespace spdld::media::test

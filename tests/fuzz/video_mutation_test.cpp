// SPDX-License-Identifier: Apache-2.0
// Damages good files of video in every way that files get damaged, and sees that they either give
// frames or fail with a code of the data's, in bounded memory: once with the index of the damaged
// file, and once with that of the good one, as if the damage had come later. Deterministic: mutant
// n is the same everywhere. SPDLD_MUTATIONS says how many of each format (100). What they came to
// is printed, by its reason.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/probe/prober.h"
#include "media/video/video_decoder.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/media/video/clip_maker.h"

namespace spdld::media::test {
namespace {

struct Outcome {
  Code code = Code::kOk;
  std::string reason;
  Frames frames;
};

Outcome failure(const Status& status) { return {status.code(), reason_of(status), {}}; }

// The frames of a file by the packets that were found in it, or in another one.
Outcome outcome_of(VideoDecoder& decoder, const MediaStream& stream, const Bytes& bytes) {
  MediaClip clip;
  clip.stream = stream.info;
  clip.packets = stream.packets;
  clip.frames = stream.frame_pts;
  Result<Frames> frames = frames_of(decoder, clip, bytes);
  if (!frames) return failure(frames.error());
  return {Code::kOk, "ok", *std::move(frames)};
}

const MediaStream* video_of(const MediaFile& file) {
  for (const MediaStream& stream : file.streams) {
    if (stream.info.kind == StreamInfo::Kind::kVideo && !stream.frame_pts.empty()) return &stream;
  }
  return nullptr;
}

class VideoMutation {
 public:
  // Pictures of more pixels than a few megabytes have are refused.
  static constexpr VideoLimits kLimits{.max_pixels = 512 * 512, .max_frames = 200};

  void expect_survived(const Bytes& good, std::uint64_t seed) {
    MemoryReader reader(good);
    const Result<MediaFile> known = probe(reader);
    ASSERT_TRUE(known) << known.error().message();
    for (int i = 0; i < mutations_wanted(100); ++i) {
      KeyedRng rng(mix64(seed, static_cast<std::uint64_t>(i)));
      const Bytes bytes = mutant_of(good, rng);
      SCOPED_TRACE("mutant " + std::to_string(i));
      see(*video_of(*known), bytes, "bytes: ");
      MemoryReader damaged(bytes);
      const Result<MediaFile> file = probe(damaged, MediaLimits{.max_pixels = kLimits.max_pixels});
      if (!file) {
        note(failure(file.error()), "probe: ");
      } else if (const MediaStream* const stream = video_of(*file); stream != nullptr) {
        see(*stream, bytes, "file: ");
      } else {
        note({Code::kOk, "no video", {}}, "probe: ");
      }
    }
  }

  ~VideoMutation() {
    for (const auto& [reason, count] : outcomes_)
      std::cout << "  " << count << " " << reason << '\n';
    // A run in which nothing failed, or everything for one reason, has tested nothing.
    EXPECT_GE(outcomes_.size(), 3U);
  }

 private:
  void note(const Outcome& outcome, const std::string& how) {
    ++outcomes_[how + outcome.reason];
    EXPECT_TRUE(outcome.code == Code::kOk || outcome.code == Code::kDataLoss ||
                outcome.code == Code::kInvalidArgument || outcome.code == Code::kResourceExhausted)
        << outcome.reason;
  }

  void see(const MediaStream& stream, const Bytes& bytes, const std::string& how) {
    const Outcome outcome = outcome_of(used_, stream, bytes);
    note(outcome, how);
    // What a file comes to must not depend on the files before it, nor on what frames held before
    // they were decoded.
    ClipDecoder fresh(3, kLimits, ~kFrameMark);
    const Outcome again = outcome_of(fresh, stream, bytes);
    EXPECT_EQ(again.reason, outcome.reason);
    EXPECT_TRUE(again.frames.pixels == outcome.frames.pixels);
  }

  ClipDecoder used_{3, kLimits};
  std::map<std::string, int> outcomes_;
};

constexpr int kFrames = 12;

void expect_survived(const std::string& options, const std::string& name, std::uint64_t seed) {
  const MediaMaker maker;
  VideoMutation mutation;
  mutation.expect_survived(maker.make(moving_pictures(kFrames) + options, name), seed);
}

TEST(VideoMutation, OfH264NeverBreaksTheDecoder) {
  expect_survived("-c:v libx264 -threads 1 -g 6 -bf 2 -pix_fmt yuv420p", "a.mp4", 0x68323634);
}

TEST(VideoMutation, OfOpenGroupsInMatroskaNeverBreaksTheDecoder) {
  expect_survived("-c:v libx264 -threads 1 -g 6 -bf 2 -x264-params open-gop=1 -pix_fmt yuv420p",
                  "a.mkv", 0x6f);
}

TEST(VideoMutation, OfHevcNeverBreaksTheDecoder) {
  expect_survived("-c:v libx265 -pix_fmt yuv420p10le -x265-params log-level=none:pools=1:keyint=6",
                  "a.mp4", 0x68657663);
}

TEST(VideoMutation, OfVp9NeverBreaksTheDecoder) {
  expect_survived("-c:v libvpx-vp9 -g 6 -deadline realtime -cpu-used 8", "a.webm", 0x767039);
}

TEST(VideoMutation, OfVp8NeverBreaksTheDecoder) {
  expect_survived("-c:v libvpx -g 6 -deadline realtime -cpu-used 8", "a.webm", 0x767038);
}

TEST(VideoMutation, OfAv1NeverBreaksTheDecoder) {
  expect_survived("-c:v libsvtav1 -preset 12 -g 6 -svtav1-params lp=1 -pix_fmt yuv420p", "a.mkv",
                  0x617631);
}

TEST(VideoMutation, OfMpeg4NeverBreaksTheDecoder) {
  expect_survived("-c:v mpeg4 -q:v 3 -g 6 -bf 2", "a.mp4", 0x6d7034);
}

TEST(VideoMutation, OfTransportStreamsNeverBreaksTheDecoder) {
  expect_survived("-c:v mpeg2video -q:v 3 -g 6 -bf 2", "a.ts", 0x7473);
}

TEST(VideoMutation, OfMotionJpegNeverBreaksTheDecoder) {
  expect_survived("-c:v mjpeg -q:v 3", "a.avi", 0x6d6a);
}

}  // namespace
}  // namespace spdld::media::test

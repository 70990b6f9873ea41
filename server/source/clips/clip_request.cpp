// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_request.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "source/clips/clip_packets.h"
#include "source/clips/clip_units.h"

namespace spdld::source {
namespace {

using End = ClipsSpec::End;

// Begins first, and what overlaps or touches becomes one; how many are left.
std::size_t merge(std::span<PacketRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const PacketRange& a, const PacketRange& b) { return a.begin < b.begin; });
  std::size_t count = 0;
  for (const PacketRange& range : ranges) {
    if (count > 0 && range.begin <= ranges[count - 1].end) {
      ranges[count - 1].end = std::max(ranges[count - 1].end, range.end);
    } else {
      ranges[count++] = range;
    }
  }
  return count;
}

tl::unexpected<Status> lost(const char* what) {
  return error(Code::kDataLoss, std::string("the index of this file lacks ") + what +
                                    "; apply the pipeline again, which indexes it anew");
}

Result<ClipPieces> make_frames(const ClipsSpec& spec, const ClipFile& file,
                               std::span<const std::uint64_t> starts, std::size_t most_pieces,
                               MediaClip& clip) {
  SPDLD_CHECK(!starts.empty() && starts.size() <= ClipsSpec::kMostStacked);
  std::array<PacketRange, ClipsSpec::kMostStacked> ranges;
  const auto wanted = static_cast<std::size_t>(spec.frames);
  const bool by_packets = file.info.access == StreamInfo::Access::kPackets;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t first = clip.frames.size();
    file.frames.take(starts[i], static_cast<std::uint64_t>(spec.stride), wanted, clip.frames);
    const std::size_t there = clip.frames.size() - first;
    if (there == 0) return lost("a frame");
    // Pictures of one time come from packets of one time, which are looked for once.
    const auto times = std::span(clip.frames).subspan(first, there);
    if (by_packets && !find_frame_packets(file.packets, file.info, times, ranges[i]))
      return lost("the packets of a frame");
    for (std::size_t over = there; over < wanted; ++over)
      clip.frames.push_back(spec.end == End::kLoop ? clip.frames[first + over % there]
                                                   : clip.frames[first + there - 1]);
  }
  clip.repeats = starts.size();
  if (!by_packets) return ClipPieces::whole();
  const std::size_t count = merge({ranges.data(), starts.size()});
  std::array<std::size_t, ClipsSpec::kMostStacked> runs;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t before = clip.packets.size();
    if (!take_packets(file.packets, ranges[i], i > 0, clip.packets)) return lost("packets");
    runs[i] = clip.packets.size() - before;
  }
  return ClipPieces::of(clip.packets, {runs.data(), count}, most_pieces);
}

Result<ClipPieces> make_samples(const StreamInfo& info, const PacketTable& packets,
                                const SoundClock& clock, MediaClip& clip) {
  const std::uint64_t first = std::min(clip.first_sample, info.samples);
  std::uint64_t heard = clip.samples - clip.silence_before;
  for (const SoundGap& gap : clip.gaps) heard -= static_cast<std::uint64_t>(gap.samples);
  const std::uint64_t samples = std::min(heard, info.samples - first);
  switch (info.access) {
    case StreamInfo::Access::kDemux: return ClipPieces::whole();
    case StreamInfo::Access::kPcm: {
      const auto align = static_cast<std::uint64_t>(std::max(info.codec->block_align, 0));
      clip.bytes_first_sample = first;
      return ClipPieces::one(info.pcm_offset + first * align,
                             info.pcm_offset + (first + samples) * align);
    }
    case StreamInfo::Access::kPackets: break;
  }
  clip.begin_pts = clock.begin;
  if (samples == 0) return ClipPieces::one(0, 0);  // silence alone
  const PacketRange range = find_sound_packets(packets, info, clock, first, samples);
  if (!take_packets(packets, range, false, clip.packets)) return lost("packets");
  const std::size_t all = clip.packets.size();
  return ClipPieces::of(clip.packets, {&all, 1}, 1);
}

// Sets which samples are heard in `clip.samples` from `time` on, which counts samples from when the
// first one is heard as a player does, with the silence of gaps.
void place_sound(const ClipSound& sound, std::int64_t time, MediaClip& clip) {
  const auto number = [&sound](const SoundGap& gap) { return gap.before - sound.clock.begin; };
  std::int64_t first = time;
  std::int64_t silence = 0;
  auto gap = sound.gaps.begin();
  // No sample before such a gap is heard.
  for (; gap != sound.gaps.end() && number(*gap) <= 0; ++gap) first -= gap->samples;
  for (; gap != sound.gaps.end() && first >= number(*gap); ++gap) {
    first -= gap->samples;
    if (first >= number(*gap)) continue;
    // It begins within this gap.
    silence = number(*gap) - first;
    first = number(*gap);
    ++gap;
    break;
  }
  if (first < 0) {
    silence = -first;
    first = 0;
  }
  // Streams of one file may lie so far apart that samples cannot be counted.
  constexpr std::int64_t kFar = 1'000'000'000'000;
  first = std::min(first, kFar);
  clip.first_sample = static_cast<std::uint64_t>(first);
  clip.silence_before = std::min(static_cast<std::uint64_t>(silence), clip.samples);
  auto left = static_cast<std::int64_t>(clip.samples - clip.silence_before);
  for (; gap != sound.gaps.end() && number(*gap) - first < left; ++gap) {
    left -= number(*gap) - first;
    first = number(*gap);
    clip.gaps.push_back({.before = first, .samples = std::min(left, gap->samples)});
    left -= clip.gaps.back().samples;
  }
}

}  // namespace

Result<ClipPieces> make_clip(const ClipsSpec& spec, const ClipFile& file,
                             std::span<const std::uint64_t> starts, std::size_t most_pieces,
                             MediaClip& clip) {
  clip.stream = file.info;
  if (spec.unit == ClipsSpec::Unit::kFrames)
    return make_frames(spec, file, starts, most_pieces, clip);
  SPDLD_CHECK(starts.size() == 1);
  clip.first_sample = starts.front();
  clip.samples = file.grid.span;
  clip.loop = spec.end == End::kLoop;
  return make_samples(file.info, file.packets, sound_clock(file.info, file.packets), clip);
}

Result<ClipPieces> make_clip_sound(const ClipsSpec& spec, const ClipFile& file,
                                   const ClipSound& sound, std::uint64_t start, MediaClip& clip) {
  const auto rate = static_cast<double>(sound.info.codec->sample_rate);
  const auto samples_at = [rate](std::int64_t time, const Ratio& base) {
    return ticks_to_units(static_cast<double>(time), base, rate);
  };
  const Ratio& base = file.info.time_base;
  const double begin = samples_at(file.frames.time(start), base);
  clip.stream = sound.info;
  clip.loop = spec.end == End::kLoop;
  clip.samples = sound.samples;
  if (clip.samples == 0) {
    // To the frame behind the last one, or to where that would be.
    const auto span = static_cast<std::uint64_t>(spec.frames * spec.stride);
    const std::uint64_t last = std::min(start + span, file.length - 1);
    const double end = samples_at(file.frames.time(last), base) +
                       static_cast<double>(start + span - last) * file.mean_frame_seconds() * rate;
    clip.samples = static_cast<std::uint64_t>(std::llround(std::max(0.0, end - begin)));
  }
  const double heard = samples_at(sound.clock.begin, sound.info.time_base);
  constexpr auto kMost = static_cast<double>(kMostTime);
  place_sound(sound, nearest_sample(std::clamp(begin - heard, -kMost, kMost)), clip);
  return make_samples(sound.info, sound.packets, sound.clock, clip);
}

}  // namespace spdld::source

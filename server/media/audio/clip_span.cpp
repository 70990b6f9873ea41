// SPDX-License-Identifier: Apache-2.0
#include "media/audio/clip_span.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace spdld::media {

Result<ClipSpan> ClipSpan::of(const MediaClip& clip) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  const std::uint64_t stream = clip.stream.samples;
  if (clip.first_sample > kMost || clip.samples > kMost || stream > kMost ||
      clip.silence_before > clip.samples)
    return error(Code::kDataLoss, "its clip lies at impossible samples");
  std::uint64_t heard = clip.samples - clip.silence_before;
  auto before = static_cast<std::int64_t>(clip.first_sample);
  for (const SoundGap& gap : clip.gaps) {
    if (gap.before < before || gap.samples < 0 || static_cast<std::uint64_t>(gap.samples) > heard)
      return error(Code::kDataLoss, "the gaps of its clip lie at impossible samples");
    heard -= static_cast<std::uint64_t>(gap.samples);
    before = gap.before;
  }
  ClipSpan span;
  span.begin_ = static_cast<std::int64_t>(std::min(clip.first_sample, stream));
  span.end_ = static_cast<std::int64_t>(std::min(clip.first_sample + heard, stream));
  span.samples_ = static_cast<std::int64_t>(clip.samples);
  span.silence_ = static_cast<std::int64_t>(clip.silence_before);
  span.gaps_ = clip.gaps;
  span.loops_ = clip.loop;
  return span;
}

Status ClipSpan::fill(Sound& sound, std::vector<float>& scratch) const {
  const std::int64_t had = sound.length;
  if (had != end_ - begin_)
    return {Code::kDataLoss, "of the samples " + std::to_string(begin_) + " to " +
                                 std::to_string(end_) + " of its stream " + std::to_string(had) +
                                 " are there: it is damaged, or was changed since it was indexed"};
  if (had == samples_) return {};
  const int channels = sound.channels;
  const auto values = static_cast<std::size_t>(channels * samples_);
  scratch.reserve(values);  // and no more
  scratch.resize(values);
  for (int c = 0; c < channels; ++c) {
    const float* const in = sound.values.data() + c * had;
    float* const out = scratch.data() + c * samples_;
    std::fill_n(out, silence_, 0.0F);
    std::int64_t made = silence_;
    std::int64_t taken = 0;
    for (const SoundGap& gap : gaps_) {
      if (gap.before > end_) break;  // the stream ends before it
      const std::int64_t count = gap.before - begin_ - taken;
      std::copy_n(in + taken, count, out + made);
      std::fill_n(out + made + count, gap.samples, 0.0F);
      taken += count;
      made += count + gap.samples;
    }
    std::copy_n(in + taken, had - taken, out + made);
    made += had - taken;
    const std::int64_t again = made - silence_;
    while (loops_ && had > 0 && made < samples_) {
      const std::int64_t count = std::min(again, samples_ - made);
      std::copy_n(out + silence_, count, out + made);
      made += count;
    }
    std::fill_n(out + made, samples_ - made, 0.0F);
  }
  sound.values.swap(scratch);
  sound.reshape(channels, 0, samples_);
  return {};
}

}  // namespace spdld::media

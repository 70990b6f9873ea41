// SPDX-License-Identifier: Apache-2.0
#include "media/audio/sample_clock.h"

extern "C" {
#include <libavutil/mathematics.h>
}

namespace spdld::media {

std::int64_t SampleClock::sample_at(std::int64_t pts, std::int64_t frame_samples) const {
  const std::int64_t sample =
      av_rescale_q(pts - begin_pts, time_base, AVRational{1, sample_rate > 0 ? sample_rate : 1});
  const bool exact = std::int64_t{time_base.num} * sample_rate <= time_base.den;
  if (exact || frame_samples <= 0) return sample;
  // The multiple that is nearest.
  const std::int64_t from_encoder = sample + initial_padding;
  const std::int64_t half = frame_samples / 2;
  const std::int64_t frames = (from_encoder + (from_encoder < 0 ? -half : half)) / frame_samples;
  return frames * frame_samples - initial_padding;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavutil/rational.h>
}

#include <cstdint>

namespace spdld::media {

// Tells from a frame's time which sample of its stream is the frame's first.
struct SampleClock {
  AVRational time_base{0, 1};
  std::int64_t begin_pts = 0;  // when sample 0 is heard
  int sample_rate = 0;
  // The encoder put so many samples before sample 0.
  int initial_padding = 0;

  // `frame_samples`: what every packet decodes to, before any is cut off. Where ticks are longer
  // than samples, times are rounded, and frames begin at multiples of that from the encoder's first
  // sample on.
  std::int64_t sample_at(std::int64_t pts, std::int64_t frame_samples) const;
};

}  // namespace spdld::media

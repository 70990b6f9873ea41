// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "op/audio.h"
#include "op/media.h"

namespace spdld::media {

// How a clip's window lies in its stream of sound: which samples must be decoded for it, and how
// the window is made of them.
class ClipSpan {
 public:
  // `clip` outlives the span. kDataLoss: these are numbers of no stream.
  static Result<ClipSpan> of(const MediaClip& clip);

  // The samples that are decoded: [begin, end) of the stream. None: the window is silence.
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  std::int64_t samples() const { return samples_; }  // of the window

  // `sound`, which is what was decoded, becomes the window: silence before and in its gaps, and
  // after it silence or the same again. kDataLoss: it is not as much as the clip says.
  Status fill(Sound& sound, std::vector<float>& scratch) const;

 private:
  ClipSpan() = default;

  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t silence_ = 0;  // of the window's samples, the first
  std::span<const SoundGap> gaps_;
  bool loops_ = false;
};

}  // namespace spdld::media

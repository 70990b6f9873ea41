// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "media/audio/sample_clock.h"
#include "media/audio/sound_window.h"
#include "media/container/ffmpeg.h"

namespace spdld::media {

// Decodes the packets of one stream of sound after the other into float32. Owned by a worker, and
// used by its thread alone: keeps its codec's context as long as streams are alike, and only where
// a codec forgets all of the stream before, so that sound never depends on what was decoded before
// it. Call it with no FfmpegReports alive.
class AudioDecoder {
 public:
  // Ready for the first packet of such a stream. kDataLoss: these are parameters of no sound;
  // kInvalidArgument: of a codec that is not decoded; kResourceExhausted: of more channels than so
  // many.
  Status begin(const AVCodecParameters& parameters, AVRational time_base, int max_channels);
  // Before decode(): packets are not the stream's first ones, and the first frame says by its time
  // where in the stream it stands.
  void place_by(const SampleClock& clock) { clock_ = clock; }

  // Decodes a packet, whose side data says what is cut off for encoder delay and padding; or, with
  // null, what the codec held back. False: `window` lacks room. An error is what the codec says of
  // the packet, or that the stream changes its format within; begin() must come next then, unless
  // the packet may be lost.
  Result<bool> decode(const AVPacket* packet, SoundWindow& window);

 private:
  bool goes_on_with(const AVCodecParameters& parameters) const;
  Result<bool> take_frame(SoundWindow& window);
  Status failure(int result, const FfmpegReports& reports) const;

  AvPtr<AVCodecContext> context_;
  AvPtr<AVCodecParameters> parameters_;  // that the context was opened with
  AvPtr<AVFrame> frame_;
  bool clean_ = false;  // nothing has gone wrong since the context was opened
  // Whether samples have come since the last packet that said to cut some off: what is yet to be
  // cut off the codec does not forget.
  bool has_cut_ = true;
  int max_channels_ = 0;
  std::optional<SampleClock> clock_;  // until the first frame has come
};

}  // namespace spdld::media

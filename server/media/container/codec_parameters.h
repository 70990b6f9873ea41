// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "media/container/ffmpeg.h"
#include "op/media.h"

namespace spdld::media {

// Copies what a demuxer tells of a codec, with names in place of FFmpeg's numbers.
CodecParameters codec_parameters(const AVCodecParameters& codec, AVRational sample_aspect);

// Sets of `out` what sound and video have in common, the extradata replaced. kDataLoss: the codec
// is none of this type; or kNoMemory.
Status set_parameters(const CodecParameters& codec, AVMediaType type, AVCodecParameters& out);

// "stereo"; empty: not told which channels these are.
std::string channel_layout_name(const AVChannelLayout& layout);

// How pictures must be turned to stand upright, by the display matrix of the stream.
struct Turn {
  int rotation = 0;
  bool mirrored = false;
  bool exact = true;  // a multiple of 90 degrees; if not, the nearest is given
};
Turn turn_of(const AVStream& stream);

}  // namespace spdld::media

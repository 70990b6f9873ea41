// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "media/container/ffmpeg.h"

namespace spdld::media {

// The form of sound once it is decoded, where containers do not tell it or tell it wrongly: AAC's
// spectral replication may double the rate and the samples of a packet, parametric stereo the
// channels, and mp4 says of mono mp3 that it is stereo.
struct SoundFormat {
  int sample_rate = 0;
  int channels = 0;
  std::string channel_layout;
  std::string sample_format;
  int frame_size = 0;
};

// Whether a packet of this codec must be decoded to know.
bool hides_format(AVCodecID codec);

// Decodes one packet to know; empty: the packet does not decode. An error is kNoMemory.
Result<std::optional<SoundFormat>> sound_format(const AVCodecParameters& codec,
                                                std::span<const std::byte> packet);

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "media/container/ffmpeg.h"

namespace spdld::media {

// Tells how many samples the decoder makes of each packet of one stream of sound, by the packet's
// header and without decoding it. Packets are given in the stream's order.
class PacketSamples {
 public:
  explicit PacketSamples(const AVCodecParameters& codec);

  // From here on: what the decoder makes of an AAC packet.
  void set_frame_size(int samples) { frame_size_ = samples; }

  // Returns 0 for a packet whose header is damaged.
  std::int64_t of(std::span<const std::byte> packet);
  // Whether of() looks at the packet's bytes, not at their number alone.
  bool needs_bytes() const;

 private:
  AVCodecID codec_;
  int frame_size_;
  int block_bytes_ = 0;  // of PCM: of a sample of all channels
  AvPtr<AVVorbisParseContext> vorbis_;
  bool first_ = true;
};

}  // namespace spdld::media

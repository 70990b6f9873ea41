// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "media/container/ffmpeg.h"
#include "op/media.h"

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

// Tells how many samples are left of each packet of a stream of sound, in the stream's order, as
// libavcodec cuts them off: what is to be skipped goes on over packets; padding is cut off only
// where the packet has so much left.
class CutSamples {
 public:
  struct Kept {
    std::int64_t skipped = 0;  // at the packet's begin
    std::int64_t samples = 0;  // that are heard
  };
  // MediaPacket::duration is what the packet decodes to.
  Kept of(const MediaPacket& packet);

 private:
  std::int64_t pending_ = 0;  // that are cut off the next packets
};

}  // namespace spdld::media

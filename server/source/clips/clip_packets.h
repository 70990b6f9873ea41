// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "op/media.h"
#include "source/media_index/packet_table.h"

namespace spdld::source {

// Packets of a stream by their numbers, in decoding order.
struct PacketRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The packets that a decoder needs for the frames of these times, which ascend: from the key packet
// whose picture is the first of them, or the last before it, to the last one that any of them comes
// from. What is before a picture in decoding order is all that it can be made of, whatever order
// pictures are shown in. Where the stream refreshes gradually, from so far back on that the first
// of the frames is whole. False: the table lacks a frame.
bool find_frame_packets(const PacketTable& table, const StreamInfo& info,
                        std::span<const std::int64_t> times, PacketRange& range);

// The clock of a stream of sound: when its first sample is heard, in its time base.
struct SoundClock {
  std::int64_t begin = 0;
  double samples_per_tick = 1;  // of the time base
};
// The clock of a stream whose packets are kept; a default one where they have no times.
SoundClock sound_clock(const StreamInfo& info, const PacketTable& table);

// The packets for `samples` samples from `first` on: with those before them that a decoder of this
// codec must have seen, and one more on each side where the container's times are rounded. Empty:
// there are none.
PacketRange find_sound_packets(const PacketTable& table, const StreamInfo& info,
                               const SoundClock& clock, std::uint64_t first, std::uint64_t samples);

// Puts the packets of the range behind those in `packets`, with their places in the part. The first
// one is marked if `gap`. False: the table lacks them.
bool take_packets(const PacketTable& table, const PacketRange& range, bool gap,
                  std::vector<MediaPacket>& packets);

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "media/bytes/byte_order.h"

namespace spdld::media {

// The header of the frame of MPEG audio that a packet begins with, as FFmpeg's decoder looks for
// it: behind zeros, and only if no part of it is reserved. 0: the packet holds no frame, such as a
// tag that stands between frames, and FFmpeg makes no sound of it.
inline std::uint32_t mpeg_audio_header(std::span<const std::byte> packet) {
  while (!packet.empty() && packet[0] == std::byte{0}) packet = packet.subspan(1);
  if (packet.size() < 4) return 0;
  std::uint32_t header = 0;
  for (std::size_t i = 0; i < 4; ++i) header = header << 8 | byte_at(packet, i);
  const bool is_frame = header >> 21 == 0x7FF && (header >> 17 & 3) != 0 &&
                        (header >> 12 & 15) != 15 && (header >> 10 & 3) != 3;
  return is_frame ? header : 0;
}

}  // namespace spdld::media

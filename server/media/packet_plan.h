// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "op/media.h"

namespace spdld::media {

// Which of a clip's packets a decoder of video is given so that the wanted frames come out, and no
// more than they need: of each group of pictures with a wanted frame, the packets from its key
// frame to the last wanted one. One worker's; its memory is reused.
class PacketPlan {
 public:
  enum class Step : std::uint8_t {
    kSkip,
    kSend,
    kBegin,  // the decoder is emptied first, and begins anew with this packet
  };

  // `wanted`: times of frames, ascending, each once. Where `ends_early`, a frame needs no packet
  // behind the one of its time.
  void make(std::span<const MediaPacket> packets, std::span<const std::int64_t> wanted,
            bool ends_early);

  std::span<const Step> steps() const { return steps_; }
  std::uint64_t sent() const { return sent_; }
  // How many of the wanted frames have a packet.
  std::size_t found() const { return found_; }

 private:
  void plan_group(std::span<const MediaPacket> packets, std::size_t begin, std::size_t end,
                  bool ends_early);
  bool has_wanted_before(std::span<const MediaPacket> packets, std::size_t key) const;

  std::vector<Step> steps_;
  std::vector<std::uint8_t> is_wanted_;
  std::size_t sent_to_ = 0;  // all before were planned, and the last of them is sent
  std::uint64_t sent_ = 0;
  std::size_t found_ = 0;
};

}  // namespace spdld::media

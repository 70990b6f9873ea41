// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "op/media.h"

namespace spdld::media {

// Chooses those of a clip's packets that a decoder of video is given for the wanted frames, and no
// more than they need: of each group of pictures with a wanted frame, the packets from its key
// frame to the last wanted one, without those that no other picture needs. One worker's; its memory
// is reused.
class PacketPlan {
 public:
  enum class Step : std::uint8_t {
    kSkip,
    kSend,
    kBegin,  // the decoder is emptied first, and begins anew with this packet
    // Sent, though it may need pictures that are not there: no wanted frame is made of it, and what
    // is wrong with it is no damage.
    kTry,
    kBeginTry,  // kBegin of a packet that is kTry
  };

  // How a codec's pictures depend on each other.
  struct Codec {
    // A frame needs no packet behind the one of its time.
    bool ends_early = true;
    // A decoder that begins at a key frame must see the pictures that stand behind it and are shown
    // before it: later packets say which of them are no longer needed.
    bool counts_leading = false;
    // Of a stream that refreshes gradually: pictures_until_whole(). 0: it does not.
    std::size_t until_whole = 0;
  };

  // `wanted`: times of frames, ascending, each once. `disposable`: of each packet, whether no other
  // one needs it; may be empty.
  void make(std::span<const MediaPacket> packets, std::span<const std::int64_t> wanted,
            const Codec& codec, std::span<const std::uint8_t> disposable = {});

  std::span<const Step> steps() const { return steps_; }
  std::uint64_t sent() const { return sent_; }
  // How many of the wanted frames have a packet.
  std::size_t found() const { return found_; }
  // The number of the packet that the wanted frame `i` comes from, if it has one.
  std::size_t packet_of(std::size_t i) const { return packet_of_[i]; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  // A group of pictures: its packets [begin, end), behind those from `run` on without a gap.
  struct Group {
    std::size_t run = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  void plan_group(std::span<const MediaPacket> packets, const Group& group, const Codec& codec,
                  std::span<const std::uint8_t> disposable);
  void plan_gradual(std::span<const MediaPacket> packets, const Group& group,
                    std::size_t until_whole, std::span<const std::uint8_t> disposable);
  bool has_wanted_before(std::span<const MediaPacket> packets, std::size_t key) const;

  std::vector<Step> steps_;
  std::vector<std::uint8_t> is_wanted_;
  std::vector<std::size_t> packet_of_;  // of each wanted frame; kNone: it has no packet
  std::size_t sent_to_ = 0;             // all before were planned, and the last of them is sent
  std::uint64_t sent_ = 0;
  std::size_t found_ = 0;
};

}  // namespace spdld::media

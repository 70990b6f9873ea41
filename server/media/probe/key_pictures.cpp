// SPDX-License-Identifier: Apache-2.0
#include "media/probe/key_pictures.h"

#include <algorithm>

#include "media/container/random_access.h"

namespace spdld::media {

KeyPictures::KeyPictures(const CodecParameters& codec)
    : codec_(codec.codec),
      length_bytes_(nal_length_bytes(codec.codec, codec.extradata)),
      by_units_(codec_ == "h264" || codec_ == "hevc") {}

bool KeyPictures::is_full(std::span<const std::byte> head) const {
  return refresh_at(codec_, length_bytes_, head) == Refresh::kFull;
}

bool KeyPictures::wants(const MediaPacket& packet) const {
  if (packet.key) return by_units_ || keys_ < 2;
  return keys_ == 1 && packet.pts != kNoTime && packet.pts < first_pts_;
}

void KeyPictures::look(MediaPacket& packet, bool is_first, std::span<const std::byte> head) {
  head = head.first(std::min(head.size(), kHeadBytes));
  if (!packet.key) {
    if (lacks_reference(codec_, length_bytes_, first_head_, head)) packet.discard = true;
    return;
  }
  const Refresh refresh = refresh_at(codec_, length_bytes_, head);
  packet.key = refresh != Refresh::kNone || is_first;
  if (!packet.key) return;
  if (refresh == Refresh::kGradual) refreshes_gradually_ = true;
  if (++keys_ > 1) return;
  begins_gradually_ = refresh == Refresh::kGradual;
  first_pts_ = packet.pts;
  first_head_.assign(head.begin(), head.end());
}

}  // namespace spdld::media

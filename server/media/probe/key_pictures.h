// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "op/media.h"

namespace spdld::media {

// Learns from the first bytes of packets at which pictures of a stream of video a decoder can
// begin, and which of the stream's first pictures it never makes: what a container flags as a key
// picture may be none. Used by one thread.
class KeyPictures {
 public:
  // Before a picture's data stand parameters and supplements, in so many bytes.
  static constexpr std::size_t kHeadBytes = 4096;

  explicit KeyPictures(const CodecParameters& codec);

  // Whether flags of key packets may be wrong at all.
  bool can_differ() const { return by_units_; }
  // Whether a decoder that begins at the packet gives the same pictures as one that began before.
  bool is_full(std::span<const std::byte> head) const;
  // Whether look() tells something of the packet, which is the next one of the stream.
  bool wants(const MediaPacket& packet) const;
  // Sets `key` and `discard` by the packet's first bytes. `is_first`: of the stream, where a
  // decoder begins whatever it is.
  void look(MediaPacket& packet, bool is_first, std::span<const std::byte> head);

  bool refreshes_gradually() const { return refreshes_gradually_; }
  // Whether the first key picture is no full refresh.
  bool begins_gradually() const { return begins_gradually_; }

 private:
  const std::string codec_;
  const std::size_t length_bytes_;
  const bool by_units_;  // H.264 and HEVC
  std::size_t keys_ = 0;
  std::int64_t first_pts_ = kNoTime;
  std::vector<std::byte> first_head_;
  bool refreshes_gradually_ = false;
  bool begins_gradually_ = false;
};

}  // namespace spdld::media

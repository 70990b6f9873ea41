// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "op/media.h"

namespace spdld::media {

// Finds pictures that no other one is made of, by what H.264 and HEVC write before each of them, so
// that a decoder needs those alone that are wanted themselves.
class Disposable {
 public:
  // `packets` of the stream in decoding order, with offsets in `bytes`; what lies beyond them is
  // not looked at. Where nothing is known of a packet, it is needed.
  void find(const CodecParameters& codec, std::span<const MediaPacket> packets,
            std::span<const std::byte> bytes);

  // One for each packet: whether no other one needs it.
  std::span<const std::uint8_t> flags() const { return flags_; }
  // Whether packets bring parameters, or may: a decoder keeps these for what comes behind.
  bool has_parameters() const { return has_parameters_; }

 private:
  bool has_parameters_ = true;
  std::vector<std::uint8_t> flags_;
  std::vector<std::uint8_t> layers_;
};

}  // namespace spdld::media

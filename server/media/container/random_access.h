// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spdld::media {

// How the units of an H.264 or HEVC stream with these extra data are told apart: each has its
// length before it, in so many bytes. 0: by start codes.
std::size_t nal_length_bytes(std::string_view codec, std::span<const std::byte> extradata);

// Which pictures come out right if a decoder begins at a packet: the one in it and those behind it.
enum class Refresh : std::uint8_t {
  kFull,     // all of them, as far as is known
  kGradual,  // those from some pictures on: each renews a part (H.264's recovery points)
  kNone,     // none: it needs pictures from before the packet
};

// Of a packet of H.264 or HEVC of which the first bytes are there. All of another codec's are
// kFull.
Refresh refresh_at(std::string_view codec, std::size_t length_bytes,
                   std::span<const std::byte> packet);

// Whether a decoder that begins at the packet `key` leaves out the picture of `packet`, which
// stands behind it and is shown before it: the picture is made of those before `key`, too. The
// first bytes of both are there.
bool lacks_reference(std::string_view codec, std::size_t length_bytes,
                     std::span<const std::byte> key, std::span<const std::byte> packet);

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/video/disposable.h"

#include <algorithm>
#include <optional>

#include "media/container/random_access.h"

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

unsigned byte_at(Bytes bytes, std::size_t i) { return std::to_integer<unsigned>(bytes[i]); }

// A picture's packet tells this of it.
struct Picture {
  bool is_needed = true;   // by others of its temporal layer
  std::uint8_t layer = 0;  // those of higher ones may need it all the same
};

// The header of a unit of a picture; empty: the unit is something else.
std::optional<Picture> h264_unit(Bytes unit) {
  const unsigned type = byte_at(unit, 0) & 31;
  if (type != 1 && type != 2 && type != 5) return std::nullopt;
  return Picture{.is_needed = (byte_at(unit, 0) >> 5 & 3) != 0};
}

std::optional<Picture> hevc_unit(Bytes unit) {
  const unsigned type = byte_at(unit, 0) >> 1 & 63;
  if (type > 31 || unit.size() < 2) return std::nullopt;
  // Pictures of even types below the key frames' are not referred to within their layer.
  constexpr unsigned kReservedNonReference = 14;
  const unsigned layer = std::max(byte_at(unit, 1) & 7, 1U) - 1;
  return Picture{.is_needed = type > kReservedNonReference || type % 2 == 1,
                 .layer = static_cast<std::uint8_t>(layer)};
}

// Parameters of sequences and pictures, of H.264 with their extension and those of HEVC's layers.
bool is_parameters(Bytes unit, bool is_hevc) {
  const unsigned type = is_hevc ? byte_at(unit, 0) >> 1 & 63 : byte_at(unit, 0) & 31;
  if (is_hevc) return type >= 32 && type <= 34;
  return type == 7 || type == 8 || type == 13 || type == 15;
}

Picture picture_of(Bytes packet, std::size_t length_bytes, bool is_hevc, bool& has_parameters) {
  Picture picture{.is_needed = false};
  bool any = false;
  while (packet.size() > length_bytes) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) length = length << 8 | byte_at(packet, i);
    packet = packet.subspan(length_bytes);
    if (length == 0 || length > packet.size()) {
      has_parameters = true;  // for all that is known
      return {};
    }
    const Bytes unit = packet.first(length);
    packet = packet.subspan(length);
    has_parameters = has_parameters || is_parameters(unit, is_hevc);
    const std::optional<Picture> told = is_hevc ? hevc_unit(unit) : h264_unit(unit);
    if (!told) continue;
    any = true;
    picture.is_needed = picture.is_needed || told->is_needed;
    picture.layer = told->layer;
  }
  return any && packet.empty() ? picture : Picture{};
}

}  // namespace

void Disposable::find(const CodecParameters& codec, std::span<const MediaPacket> packets,
                      std::span<const std::byte> bytes) {
  flags_.assign(packets.size(), 0);
  has_parameters_ = true;
  const bool is_hevc = codec.codec == "hevc";
  if (codec.codec != "h264" && !is_hevc) return;
  const std::size_t lengths = nal_length_bytes(codec.codec, codec.extradata);
  if (lengths == 0) return;
  layers_.assign(packets.size(), 0);
  has_parameters_ = false;
  std::uint8_t highest = 0;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    const MediaPacket& packet = packets[i];
    if (packet.offset > bytes.size() || packet.size_bytes > bytes.size() - packet.offset) continue;
    const Picture picture = picture_of(bytes.subspan(packet.offset, packet.size_bytes), lengths,
                                       is_hevc, has_parameters_);
    flags_[i] = picture.is_needed ? 0 : 1;
    layers_[i] = picture.layer;
    highest = std::max(highest, picture.layer);
  }
  for (std::size_t i = 0; i < packets.size(); ++i) {
    if (layers_[i] < highest) flags_[i] = 0;
  }
}

}  // namespace spdld::media

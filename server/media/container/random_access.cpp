// SPDX-License-Identifier: Apache-2.0
#include "media/container/random_access.h"

#include <algorithm>
#include <array>
#include <optional>

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

unsigned at(Bytes bytes, std::size_t i) { return std::to_integer<unsigned>(bytes[i]); }

// Where the next start code of three bytes is; the size: there is none.
std::size_t start_code(Bytes bytes) {
  for (std::size_t i = 0; i + 3 <= bytes.size(); ++i) {
    if (at(bytes, i) == 0 && at(bytes, i + 1) == 0 && at(bytes, i + 2) == 1) return i;
  }
  return bytes.size();
}

// The units of a packet, of which only the first bytes may be there.
class NalUnits {
 public:
  NalUnits(Bytes packet, std::size_t length_bytes) : rest_(packet), length_bytes_(length_bytes) {}

  // The next unit without its length or start code, as far as it is there; it is not empty. False:
  // there are no more, or what follows is damaged.
  bool next(Bytes& unit);

 private:
  Bytes rest_;
  const std::size_t length_bytes_;
};

bool NalUnits::next(Bytes& unit) {
  if (length_bytes_ > 0) {
    if (rest_.size() <= length_bytes_) return false;
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes_; ++i) length = length << 8 | at(rest_, i);
    rest_ = rest_.subspan(length_bytes_);
    if (length == 0) return false;
    unit = rest_.first(std::min(length, rest_.size()));
    rest_ = rest_.subspan(unit.size());
    return true;
  }
  constexpr std::size_t kCode = 3;
  for (;;) {
    const std::size_t begin = start_code(rest_);
    if (begin + kCode >= rest_.size()) return false;
    rest_ = rest_.subspan(begin + kCode);
    unit = rest_.first(start_code(rest_));
    rest_ = rest_.subspan(unit.size());
    if (!unit.empty()) return true;
  }
}

// The first bytes of a unit without those that keep start codes out of it.
class Payload {
 public:
  explicit Payload(Bytes unit) {
    unsigned zeros = 0;
    for (const std::byte byte : unit) {
      if (size_ == bytes_.size()) break;
      if (zeros >= 2 && byte == std::byte{3}) {
        zeros = 0;
        continue;
      }
      zeros = byte == std::byte{0} ? zeros + 1 : 0;
      bytes_[size_++] = byte;
    }
  }
  Bytes bytes() const { return Bytes(bytes_).first(size_); }

 private:
  std::array<std::byte, 1024> bytes_{};
  std::size_t size_ = 0;
};

// A number that supplemental information gives as bytes of 255 and a last one.
std::optional<std::size_t> take_number(Bytes& bytes) {
  std::size_t number = 0;
  while (!bytes.empty()) {
    const unsigned byte = at(bytes, 0);
    bytes = bytes.subspan(1);
    number += byte;
    if (byte != 255) return number;
  }
  return std::nullopt;
}

// How many frames after its picture a recovery point is reached, by the code of H.264, 9.1: zeros,
// a one, and as many bits as there are zeros.
std::optional<std::uint64_t> recovery_frames(Bytes message) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < 8; ++i) bits = bits << 8 | (i < message.size() ? at(message, i) : 0);
  constexpr int kMostZeros = 16;  // a frame number has no more bits
  int zeros = 0;
  while (zeros <= kMostZeros && (bits >> (63 - zeros) & 1) == 0) ++zeros;
  if (zeros > kMostZeros) return std::nullopt;
  return (bits << zeros >> (63 - zeros)) - 1;
}

// Of a unit of supplemental information.
std::optional<std::uint64_t> recovery_point(Bytes unit) {
  constexpr std::size_t kRecoveryPoint = 6;
  const Payload payload(unit.subspan(1));
  Bytes rest = payload.bytes();
  while (rest.size() > 2) {
    const std::optional<std::size_t> type = take_number(rest);
    const std::optional<std::size_t> size = take_number(rest);
    if (!type || !size) return std::nullopt;
    if (*type == kRecoveryPoint) return recovery_frames(rest.first(std::min(*size, rest.size())));
    rest = rest.subspan(std::min(*size, rest.size()));
  }
  return std::nullopt;
}

Refresh h264_refresh(NalUnits units) {
  constexpr unsigned kSlice = 1;
  constexpr unsigned kPartition = 2;
  constexpr unsigned kIdrSlice = 5;
  constexpr unsigned kSupplement = 6;
  std::optional<std::uint64_t> recovery;
  for (Bytes unit; units.next(unit);) {
    const unsigned type = at(unit, 0) & 31;
    if (type == kIdrSlice) return Refresh::kFull;
    if (type == kSupplement && !recovery) recovery = recovery_point(unit);
    if (type != kSlice && type != kPartition) continue;
    if (!recovery) return Refresh::kNone;
    return *recovery == 0 ? Refresh::kFull : Refresh::kGradual;
  }
  return Refresh::kFull;
}

// The type of the packet's picture; empty: it is not there.
std::optional<unsigned> hevc_picture(NalUnits units) {
  constexpr unsigned kLastPicture = 31;
  for (Bytes unit; units.next(unit);) {
    const unsigned type = at(unit, 0) >> 1 & 63;
    if (type <= kLastPicture) return type;
  }
  return std::nullopt;
}

Refresh hevc_refresh(NalUnits units) {
  constexpr unsigned kFirstKey = 16;
  constexpr unsigned kLastKey = 23;
  const std::optional<unsigned> type = hevc_picture(units);
  return !type || (*type >= kFirstKey && *type <= kLastKey) ? Refresh::kFull : Refresh::kNone;
}

bool has_idr(NalUnits units) {
  constexpr unsigned kIdrSlice = 5;
  for (Bytes unit; units.next(unit);) {
    if ((at(unit, 0) & 31) == kIdrSlice) return true;
  }
  return false;
}

// Whether the header of the group of pictures, MPEG-2's 6.2.2.6, says that none of them needs those
// before it: a bit behind 25 of its time.
bool is_closed_group(Bytes packet) {
  constexpr unsigned kGroup = 0xB8;
  constexpr std::size_t kFlagsAt = 4;
  NalUnits units(packet, 0);
  for (Bytes unit; units.next(unit);) {
    if (at(unit, 0) == kGroup && unit.size() > kFlagsAt) return (at(unit, kFlagsAt) & 0x40) != 0;
  }
  return false;
}

}  // namespace

std::size_t nal_length_bytes(std::string_view codec, Bytes extradata) {
  const std::size_t length_at = codec == "h264" ? 4 : 21;
  if (extradata.size() <= length_at || at(extradata, 0) != 1) return 0;
  return (at(extradata, length_at) & 3) + 1;
}

Refresh refresh_at(std::string_view codec, std::size_t length_bytes, Bytes packet) {
  const NalUnits units(packet, length_bytes);
  if (codec == "h264") return h264_refresh(units);
  return codec == "hevc" ? hevc_refresh(units) : Refresh::kFull;
}

bool lacks_reference(std::string_view codec, std::size_t length_bytes, Bytes key, Bytes packet) {
  if (codec == "h264") return !has_idr(NalUnits(key, length_bytes));
  if (codec == "hevc") {
    // RASL_N and RASL_R.
    const std::optional<unsigned> type = hevc_picture(NalUnits(packet, length_bytes));
    return type == 8U || type == 9U;
  }
  if (codec == "mpeg2video" || codec == "mpeg1video") return !is_closed_group(key);
  return codec == "mpeg4";
}

}  // namespace spdld::media

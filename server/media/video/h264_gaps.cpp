// SPDX-License-Identifier: Apache-2.0
#include "media/video/h264_gaps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

// The bits of a unit, without the bytes that keep start codes out of it. What is read past the end
// is 0, and told by has_ended().
class UnitBits {
 public:
  explicit UnitBits(Bytes unit) {
    int zeros = 0;
    for (const std::byte byte : unit) {
      const bool is_extra = zeros >= 2 && byte == std::byte{3};
      zeros = byte == std::byte{0} ? zeros + 1 : 0;
      if (!is_extra) bytes_.push_back(byte);
    }
  }

  bool has_ended() const { return at_ > bytes_.size() * 8; }

  std::uint32_t bit() {
    const std::size_t at = at_++;
    if (at >= bytes_.size() * 8) return 0;
    return std::to_integer<std::uint32_t>(bytes_[at / 8]) >> (7 - at % 8) & 1;
  }
  std::uint32_t bits(int count) {
    std::uint32_t value = 0;
    for (int i = 0; i < count; ++i) value = value << 1 | bit();
    return value;
  }
  // Exp-Golomb codes.
  std::uint32_t number() {
    int zeros = 0;
    while (zeros < 32 && bit() == 0 && !has_ended()) ++zeros;
    return zeros == 32 ? UINT32_MAX : (std::uint32_t{1} << zeros) - 1 + bits(zeros);
  }
  std::int64_t signed_number() {
    const std::int64_t code = number();
    return code % 2 == 0 ? -(code / 2) : (code + 1) / 2;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

void skip_scaling_list(UnitBits& bits, int size) {
  std::int64_t last = 8;
  std::int64_t next = 8;
  for (int i = 0; i < size && !bits.has_ended(); ++i) {
    if (next != 0) next = (last + bits.signed_number() % 256 + 256) % 256;
    if (next != 0) last = next;
  }
}

// ITU-T H.264, 7.3.2.1.1, as far as the flag.
std::optional<bool> gaps_of(Bytes unit) {
  constexpr std::array<std::uint32_t, 13> kWithChroma = {100, 110, 122, 244, 44,  83, 86,
                                                         118, 128, 138, 139, 134, 135};
  UnitBits bits(unit);
  constexpr int kHeaderBits = 8;
  constexpr int kLevelBits = 16;  // with the constraints
  bits.bits(kHeaderBits);
  const std::uint32_t profile = bits.bits(8);
  bits.bits(kLevelBits);
  bits.number();  // of these parameters
  if (std::find(kWithChroma.begin(), kWithChroma.end(), profile) != kWithChroma.end()) {
    const bool is_444 = bits.number() == 3;
    if (is_444) bits.bit();
    bits.number();  // depths of luma and chroma
    bits.number();
    bits.bit();
    const bool has_lists = bits.bit() != 0;
    for (int i = 0; has_lists && i < (is_444 ? 12 : 8); ++i) {
      if (bits.bit() != 0) skip_scaling_list(bits, i < 6 ? 16 : 64);
    }
  }
  bits.number();  // how many bits a picture's number has
  const std::uint32_t order = bits.number();
  if (order == 0) bits.number();
  if (order == 1) {
    bits.bit();
    bits.signed_number();
    bits.signed_number();
    const std::uint32_t cycle = bits.number();
    for (std::uint32_t i = 0; i < cycle && !bits.has_ended(); ++i) bits.signed_number();
  }
  bits.number();  // references
  const bool allowed = bits.bit() != 0;
  return bits.has_ended() ? std::nullopt : std::optional(allowed);
}

}  // namespace

std::optional<bool> h264_allows_gaps(Bytes extradata) {
  constexpr std::size_t kCountAt = 5;
  if (extradata.size() <= kCountAt || extradata[0] != std::byte{1}) return std::nullopt;
  const int count = std::to_integer<int>(extradata[kCountAt]) & 31;
  Bytes rest = extradata.subspan(kCountAt + 1);
  std::optional<bool> allowed;
  for (int i = 0; i < count; ++i) {
    if (rest.size() < 2) return std::nullopt;
    const std::size_t size =
        std::to_integer<std::size_t>(rest[0]) << 8 | std::to_integer<std::size_t>(rest[1]);
    rest = rest.subspan(2);
    if (size > rest.size()) return std::nullopt;
    const std::optional<bool> told = gaps_of(rest.first(size));
    if (!told) return std::nullopt;
    allowed = allowed.value_or(false) || *told;
    rest = rest.subspan(size);
  }
  return allowed;
}

}  // namespace spdld::media

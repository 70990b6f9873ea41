// SPDX-License-Identifier: Apache-2.0
#include "media/audio/pcm.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

namespace spdld::media {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Number>
Number load(const std::byte* in, bool big_endian) {
  using Bits = std::conditional_t<
      sizeof(Number) == 1, std::uint8_t,
      std::conditional_t<sizeof(Number) == 2, std::uint16_t,
                         std::conditional_t<sizeof(Number) == 4, std::uint32_t, std::uint64_t>>>;
  Bits bits{};
  std::memcpy(&bits, in, sizeof bits);
  if (big_endian) {
    if constexpr (sizeof(Bits) == 2) bits = __builtin_bswap16(bits);
    if constexpr (sizeof(Bits) == 4) bits = __builtin_bswap32(bits);
    if constexpr (sizeof(Bits) == 8) bits = __builtin_bswap64(bits);
  }
  return std::bit_cast<Number>(bits);
}

std::int32_t load24(const std::byte* in, bool big_endian) {
  const auto byte = [&](int i) {
    return std::to_integer<std::uint32_t>(in[big_endian ? 2 - i : i]);
  };
  // In the high bits, so that the sign is the number's.
  return static_cast<std::int32_t>(byte(0) << 8 | byte(1) << 16 | byte(2) << 24);
}

// One loop for each format, in which nothing is decided anew for each sample. Samples that lie side
// by side are a loop of their own, which the compiler makes into vectors.
template <std::size_t kBytes, typename Load>
void read_each(const std::byte* in, std::size_t stride_bytes, std::int64_t count, float* out,
               Load load_one) {
  if (stride_bytes == kBytes) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = load_one(in + i * kBytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, in += stride_bytes) out[i] = load_one(in);
}

// ITU-T G.711: what the codes stand for, as fractions of 16-bit full scale.
std::array<float, 256> alaw_table() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < table.size(); ++code) {
    const unsigned bits = code ^ 0x55U;
    const unsigned segment = bits >> 4 & 7U;
    int value = static_cast<int>((bits & 15U) << 1) + 1;
    value = segment == 0 ? value : (value + 32) << (segment - 1);
    table[code] = static_cast<float>((bits & 0x80U) != 0 ? value * 8 : -value * 8) * 0x1p-15F;
  }
  return table;
}

std::array<float, 256> mulaw_table() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < table.size(); ++code) {
    const unsigned bits = ~code & 0xFFU;
    const int value = (static_cast<int>((bits & 15U) << 3) + 0x84) << (bits >> 4 & 7U);
    table[code] = static_cast<float>((bits & 0x80U) != 0 ? 0x84 - value : value - 0x84) * 0x1p-15F;
  }
  return table;
}

}  // namespace

std::optional<PcmFormat> pcm_format(std::string_view codec) {
  using Kind = PcmFormat::Kind;
  if (!codec.starts_with("pcm_")) return std::nullopt;
  codec.remove_prefix(4);
  if (codec == "alaw") return PcmFormat{Kind::kALaw, 1};
  if (codec == "mulaw") return PcmFormat{Kind::kMuLaw, 1};
  if (codec == "u8") return PcmFormat{Kind::kUnsigned, 1};
  if (codec == "s8") return PcmFormat{Kind::kSigned, 1};
  const bool big_endian = codec.ends_with("be");
  if (!big_endian && !codec.ends_with("le")) return std::nullopt;
  codec.remove_suffix(2);
  if (codec == "s16") return PcmFormat{Kind::kSigned, 2, big_endian};
  if (codec == "s24") return PcmFormat{Kind::kSigned, 3, big_endian};
  if (codec == "s32") return PcmFormat{Kind::kSigned, 4, big_endian};
  if (codec == "f32") return PcmFormat{Kind::kFloat, 4, big_endian};
  if (codec == "f64") return PcmFormat{Kind::kFloat, 8, big_endian};
  return std::nullopt;
}

void read_pcm(const PcmFormat& format, const std::byte* in, std::size_t stride_bytes,
              std::int64_t count, float* out) {
  using Kind = PcmFormat::Kind;
  static const std::array<float, 256> kALaw = alaw_table();
  static const std::array<float, 256> kMuLaw = mulaw_table();
  const bool big = format.big_endian;
  const auto each = [&](auto bytes, auto load_one) {
    read_each<decltype(bytes)::value>(in, stride_bytes, count, out, load_one);
  };
  constexpr std::integral_constant<std::size_t, 1> kOne;
  constexpr std::integral_constant<std::size_t, 2> kTwo;
  constexpr std::integral_constant<std::size_t, 3> kThree;
  constexpr std::integral_constant<std::size_t, 4> kFour;
  constexpr std::integral_constant<std::size_t, 8> kEight;
  switch (format.kind) {
    case Kind::kALaw:
      return each(kOne,
                  [](const std::byte* at) { return kALaw[std::to_integer<std::size_t>(*at)]; });
    case Kind::kMuLaw:
      return each(kOne,
                  [](const std::byte* at) { return kMuLaw[std::to_integer<std::size_t>(*at)]; });
    case Kind::kUnsigned:
      return each(kOne, [](const std::byte* at) {
        return static_cast<float>(std::to_integer<int>(*at) - 0x80) * 0x1p-7F;
      });
    case Kind::kFloat:
      if (format.bytes == 4 && !big && stride_bytes == sizeof(float)) {
        std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float));
        return;
      }
      if (format.bytes == 4)
        return each(kFour, [=](const std::byte* at) { return load<float>(at, big); });
      return each(kEight,
                  [=](const std::byte* at) { return static_cast<float>(load<double>(at, big)); });
    case Kind::kSigned: break;
  }
  switch (format.bytes) {
    case 1:
      return each(kOne, [=](const std::byte* at) {
        return static_cast<float>(load<std::int8_t>(at, big)) * 0x1p-7F;
      });
    case 2:
      return each(kTwo, [=](const std::byte* at) {
        return static_cast<float>(load<std::int16_t>(at, big)) * 0x1p-15F;
      });
    case 3:
      return each(kThree, [=](const std::byte* at) {
        return static_cast<float>(load24(at, big)) * 0x1p-31F;
      });
    default:
      return each(kFour, [=](const std::byte* at) {
        return static_cast<float>(load<std::int32_t>(at, big)) * 0x1p-31F;
      });
  }
}

}  // namespace spdld::media

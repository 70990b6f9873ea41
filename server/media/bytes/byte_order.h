// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// Numbers as files hold them. The caller has made sure that they lie inside.
namespace spdld::media {

constexpr std::uint32_t byte_at(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<std::uint32_t>(bytes[at]);
}

template <int kBytes>
constexpr std::uint32_t le_number(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (int i = 0; i < kBytes; ++i)
    value |= std::to_integer<std::uint32_t>(bytes[at + static_cast<std::size_t>(i)]) << (8 * i);
  return value;
}

constexpr std::uint32_t le16(std::span<const std::byte> bytes, std::size_t at) {
  return le_number<2>(bytes, at);
}
constexpr std::uint32_t le32(std::span<const std::byte> bytes, std::size_t at) {
  return le_number<4>(bytes, at);
}
constexpr std::uint32_t be16(std::span<const std::byte> bytes, std::size_t at) {
  return __builtin_bswap16(static_cast<std::uint16_t>(le16(bytes, at)));
}
constexpr std::uint32_t be32(std::span<const std::byte> bytes, std::size_t at) {
  return __builtin_bswap32(le32(bytes, at));
}

inline void put_le16(std::uint32_t value, std::uint8_t* out) {
  out[0] = static_cast<std::uint8_t>(value);
  out[1] = static_cast<std::uint8_t>(value >> 8);
}
inline void put_le32(std::uint32_t value, std::uint8_t* out) {
  put_le16(value, out);
  put_le16(value >> 16, out + 2);
}

// As libraries of C take bytes, and as text.
inline const std::uint8_t* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace spdld::media

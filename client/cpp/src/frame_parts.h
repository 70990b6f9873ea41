// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "spdld/wire.h"

// Reading and writing the parts of a frame, whatever its length says.
namespace spdld::client {

// The fixed part of a frame; nothing if it is shorter than that.
template <typename T>
std::optional<T> fixed_part(std::span<const std::byte> frame) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (frame.size() < sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, frame.data(), sizeof(T));
  return out;
}

// The text behind a fixed part.
template <typename T>
std::string text_after(std::span<const std::byte> frame, std::uint32_t bytes) {
  const auto rest = frame.subspan(sizeof(T));
  return {reinterpret_cast<const char*>(rest.data()), std::min<std::size_t>(bytes, rest.size())};
}

// Calls take(key, text) for each of the texts in `rest`. False: they end early.
template <typename F>
bool read_texts(std::span<const std::byte> rest, std::uint32_t count, F&& take) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto header = fixed_part<wire::TextHeader>(rest);
    if (!header || header->bytes > rest.size() - sizeof(wire::TextHeader)) return false;
    take(header->key, text_after<wire::TextHeader>(rest, header->bytes));
    const std::size_t padded =
        sizeof(wire::TextHeader) + (static_cast<std::size_t>(header->bytes) + 3) / 4 * 4;
    rest = rest.subspan(std::min(padded, rest.size()));
  }
  return true;
}

inline void append(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  out.insert(out.end(), at, at + bytes);
}

inline void append_text(std::vector<std::byte>& out, wire::TextKey key, std::string_view text) {
  const wire::TextHeader header{key, static_cast<std::uint32_t>(text.size())};
  append(out, &header, sizeof header);
  append(out, text.data(), text.size());
  out.resize((out.size() + 3) / 4 * 4);
}

}  // namespace spdld::client

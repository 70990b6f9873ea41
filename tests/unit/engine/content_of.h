// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spdld::engine {

// Bytes by which an item can be told from others.
inline std::vector<std::byte> content_of(std::uint64_t item, std::size_t size = 1000) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(item * 7 + i);
  return bytes;
}

}  // namespace spdld::engine

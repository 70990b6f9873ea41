// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace spdld::transform {

// A table that is reused is allocated as often as it must be larger, and is as large as it must be.
template <typename T, typename Allocator>
void grow(std::vector<T, Allocator>& buffer, std::size_t size) {
  if (buffer.size() >= size) return;
  buffer.reserve(size);
  buffer.resize(size);
}

}  // namespace spdld::transform

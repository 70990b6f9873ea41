// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "source/bytes/read_some.h"

namespace spdld::source {

// Reads `text`, at most `part` bytes a time.
inline ReadSome read_of(std::string text, std::size_t part = std::size_t{1} << 20) {
  return [held = std::make_shared<const std::string>(std::move(text)), part,
          at = std::size_t{0}](std::span<char> into) mutable -> Result<std::size_t> {
    const std::size_t count = std::min({part, into.size(), held->size() - at});
    std::copy_n(held->data() + at, count, into.data());
    at += count;
    return count;
  };
}

}  // namespace spdld::source

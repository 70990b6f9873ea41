// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld {

// Where something stands in a text file; 1-based, columns in characters.
struct Place {
  std::uint64_t line = 1;
  std::uint64_t column = 1;

  // "file:line:column: message"
  Status fail(const std::string& file, const std::string& message,
              Code code = Code::kInvalidArgument) const;

  friend bool operator==(const Place&, const Place&) = default;
};

// Where the byte at `offset` of `text` stands, if `text` begins at the beginning of line `line`.
Place place_in(std::string_view text, std::size_t offset, std::uint64_t line);

// Where in `text` the first byte stands that belongs to no UTF-8 character, or is NUL; npos: there
// is none.
std::size_t find_bad_text(std::string_view text);
// What there is to say about that byte.
std::string bad_text(std::string_view text, std::size_t offset);

}  // namespace spdld

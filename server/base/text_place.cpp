// SPDX-License-Identifier: Apache-2.0
#include "base/text_place.h"

#include <algorithm>
#include <cstring>

#include "base/text/printable.h"
#include "base/text/utf8.h"

namespace spdld {
namespace {

// Whether all of eight bytes are ASCII and none is NUL.
bool plain(const char* at) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kHigh = 0x8080808080808080;
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return ((word | (word - kOnes)) & kHigh) == 0;
}

}  // namespace

Status Place::fail(const std::string& file, const std::string& message, Code code) const {
  return {code, file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + message};
}

Place place_in(std::string_view text, std::size_t offset, std::uint64_t line) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t feed = before.rfind('\n');
  const std::string_view same_line = feed == before.npos ? before : before.substr(feed + 1);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const auto characters = std::count_if(same_line.begin(), same_line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return {.line = line + static_cast<std::uint64_t>(lines),
          .column = static_cast<std::uint64_t>(characters) + 1};
}

std::size_t find_bad_text(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size() && plain(text.data() + at)) {
      at += 8;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0 || text[at] == '\0') return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string bad_text(std::string_view text, std::size_t offset) {
  if (text[offset] == '\0') return "a NUL byte; the file is no text, or cut off";
  return "the byte " + printable(text.substr(offset, 1)) +
         " belongs to no character of UTF-8; save the file as UTF-8";
}

}  // namespace spdld

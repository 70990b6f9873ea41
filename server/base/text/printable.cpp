// SPDX-License-Identifier: Apache-2.0
#include "base/text/printable.h"

#include "base/text/utf8.h"

namespace spdld {
namespace {

// C0, DEL, and C1, which terminals obey when it comes as UTF-8 (U+009B begins a sequence).
bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (lead < 0x20 || lead == 0x7F) return true;
  return lead == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

void append_escaped(std::string& out, char byte) {
  static constexpr char kDigits[] = "0123456789abcdef";
  switch (byte) {
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto value = static_cast<unsigned char>(byte);
  out += "\\x";
  out += kDigits[value >> 4];
  out += kDigits[value & 0xF];
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      append_escaped(out, text[0]);
      text.remove_prefix(1);
      continue;
    }
    const std::string_view character = text.substr(0, length);
    if (is_control(character)) {
      for (const char byte : character) append_escaped(out, byte);
    } else {
      out += character;
    }
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace spdld

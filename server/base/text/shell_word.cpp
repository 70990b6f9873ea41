// SPDX-License-Identifier: Apache-2.0
#include "base/text/shell_word.h"

#include <algorithm>

#include "base/text/ascii.h"

namespace spdld {
namespace {

bool is_plain(char c) {
  return is_letter(c) || is_digit(c) ||
         std::string_view("_-./:=,@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace spdld

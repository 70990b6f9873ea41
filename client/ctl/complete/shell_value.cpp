// SPDX-License-Identifier: Apache-2.0
#include "ctl/complete/shell_value.h"

#include <algorithm>
#include <cctype>

namespace spdld::ctl {

std::string shell_value(std::string_view word, const EnvLookup& env) {
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  std::string value;
  if (word == "~" || word.starts_with("~/")) {
    value = env("HOME").value_or("~");
    word.remove_prefix(1);
  }
  char quote = 0;
  while (!word.empty()) {
    const char c = word.front();
    word.remove_prefix(1);
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && !word.empty()) {
      value += word.front();
      word.remove_prefix(1);
    } else if (c == '$' && quote != '\'') {
      const bool braces = word.starts_with('{');
      const std::string_view rest = word.substr(braces ? 1 : 0);
      const std::size_t length = static_cast<std::size_t>(
          std::find_if_not(rest.begin(), rest.end(), in_name) - rest.begin());
      if (length == 0 || (braces && (length == rest.size() || rest[length] != '}'))) {
        value += c;  // no name: it stays as it is
        continue;
      }
      value += env(std::string(rest.substr(0, length))).value_or("");
      word.remove_prefix(length + (braces ? 2 : 0));
    } else {
      value += c;
    }
  }
  return value;
}

}  // namespace spdld::ctl

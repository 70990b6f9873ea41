// SPDX-License-Identifier: Apache-2.0
#include "spec/python_call.h"

#include <algorithm>

#include "base/text/ascii.h"

namespace spdld::spec {
namespace {

constexpr std::size_t kLongest = 256;  // what nobody types is not read

bool is_of_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; }
bool is_of_number(char c) { return is_of_word(c) || c == '+' || c == '-'; }

// "InterpolationMode.BICUBIC" and "'bicubic'" are bicubic, True is true.
std::string plain_word(std::string_view word) {
  return lower_case(word.substr(word.rfind('.') + 1));
}

// Nothing: there is more in it than YAML has.
std::optional<std::string> yaml_value(std::string_view python) {
  std::string yaml;
  std::string open;  // the brackets that are open
  for (std::size_t at = 0; at < python.size();) {
    const char c = python[at];
    const auto rest = python.substr(at);
    std::size_t taken = 1;
    if (c == '(' || c == '[') {
      open += c == '(' ? ')' : ']';
      yaml += '[';
    } else if (c == ')' || c == ']') {
      if (open.empty() || open.back() != c) return std::nullopt;
      open.pop_back();
      while (yaml.ends_with(',') || yaml.ends_with(' ')) yaml.pop_back();  // of "(224,)"
      yaml += ']';
    } else if (c == ',' || c == ' ') {
      yaml += c;
    } else if (c == '\'' || c == '"') {
      const std::size_t end = rest.find(c, 1);
      if (end == rest.npos) return std::nullopt;
      const std::string_view text = rest.substr(1, end - 1);
      if (text.empty() || !std::all_of(text.begin(), text.end(), is_of_word)) return std::nullopt;
      yaml += text;
      taken = end + 1;
    } else {
      const bool is_word = is_letter(c) || c == '_';
      const auto* const end =
          std::find_if_not(rest.begin(), rest.end(), is_word ? is_of_word : is_of_number);
      taken = static_cast<std::size_t>(end - rest.begin());
      if (taken == 0) return std::nullopt;
      const std::string_view token = rest.substr(0, taken);
      yaml += is_word ? plain_word(token) : std::string(token);
    }
    at += taken;
  }
  if (!open.empty() || yaml.empty()) return std::nullopt;
  return yaml;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Up to the next comma that stands in no brackets.
std::string_view first_argument(std::string_view rest) {
  int depth = 0;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '(' || rest[i] == '[') ++depth;
    if (rest[i] == ')' || rest[i] == ']') --depth;
    if (rest[i] == ',' && depth == 0) return rest.substr(0, i);
  }
  return rest;
}

}  // namespace

std::optional<std::vector<std::pair<std::string, std::string>>> python_arguments(
    std::string_view call) {
  const std::size_t open = call.find('(');
  if (open == call.npos || !call.ends_with(')') || call.size() > kLongest) return std::nullopt;
  std::string_view rest = call.substr(open + 1, call.size() - open - 2);
  std::vector<std::pair<std::string, std::string>> arguments;
  while (!rest.empty()) {
    const std::string_view argument = first_argument(rest);
    rest.remove_prefix(std::min(argument.size() + 1, rest.size()));
    const std::size_t equals = argument.find('=');
    const bool named = equals != argument.npos;
    const std::string_view python = trimmed(named ? argument.substr(equals + 1) : argument);
    const std::optional<std::string> yaml = yaml_value(python);
    if (!yaml) return std::nullopt;
    if (named && python == "None") continue;
    arguments.emplace_back(named ? trimmed(argument.substr(0, equals)) : "", *yaml);
  }
  return arguments;
}

}  // namespace spdld::spec

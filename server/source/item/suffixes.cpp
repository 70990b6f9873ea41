// SPDX-License-Identifier: Apache-2.0
#include "source/item/suffixes.h"

#include <algorithm>
#include <utility>

#include "base/text/ascii.h"

namespace spdld::source {

void add_suffix(std::string_view uri, std::vector<std::string>& suffixes) {
  const std::string_view name = uri.substr(uri.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot + 1 == name.size()) return;
  std::string suffix = lower_case(name.substr(dot + 1));
  if (std::find(suffixes.begin(), suffixes.end(), suffix) == suffixes.end())
    suffixes.push_back(std::move(suffix));
}

bool is_text_suffix(std::string_view suffix) {
  const std::string last = lower_case(suffix.substr(suffix.rfind('.') + 1));
  return last == "txt" || last == "text" || last == "transcript" || last == "json" || last == "jsn";
}

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#include "ctl/option_words.h"

#include <string_view>
#include <utility>

namespace spdld::ctl {

std::string in_options(std::string text) {
  // The longer ones first.
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"start=\"ledger\"", "--start ledger"},
      {"from a saved state_dict()", "at a --cursor"},
      {"device=\"cuda\"", "--device cuda"},
      {"device=", "--device"},
  };
  for (const auto& [argument, option] : kWords) {
    for (auto at = text.find(argument); at != std::string::npos;
         at = text.find(argument, at + option.size()))
      text.replace(at, argument.size(), option);
  }
  return text;
}

}  // namespace spdld::ctl

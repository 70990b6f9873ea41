// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spdld::source {

// Adds to `suffixes` that of the uri, in lower case and without its dot, unless it is there or
// there is none.
void add_suffix(std::string_view uri, std::vector<std::string>& suffixes);

// Whether parts of that suffix, which may have dots in it, are UTF-8 as WebDataset has it.
bool is_text_suffix(std::string_view suffix);

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace spdld {

// The text as one word of a shell's command line: in quotes where a shell would take it for more,
// or for less.
std::string shell_word(std::string_view text);

}  // namespace spdld

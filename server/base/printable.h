// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spdld {

// Length of the UTF-8 sequence that `text` begins with; 0 if it begins with none. Overlong forms,
// surrogates and numbers beyond U+10FFFF are none.
std::size_t utf8_length(std::string_view text);

// `text` as one line of valid UTF-8 that moves no cursor and forges no second line: a byte that
// belongs to a control character or to no character stands as \x1b, a line feed as \n.
std::string printable(std::string_view text);

}  // namespace spdld

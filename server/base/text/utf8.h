// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spdld {

// Length of the UTF-8 sequence that `text` begins with; 0 if it begins with none. Overlong forms,
// surrogates and numbers beyond U+10FFFF are none.
std::size_t utf8_length(std::string_view text);

// What messages that are UTF-8 alone can carry of file names and other people's texts: bytes that
// are not UTF-8 become "\xNN".
std::string utf8(std::string_view text);

// At most so many bytes of `text`, cut before a character.
std::string_view cut(std::string_view text, std::size_t bytes);

}  // namespace spdld

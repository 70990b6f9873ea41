// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace spdld {

// `text` as one line of valid UTF-8 that moves no cursor and forges no second line: a byte that
// belongs to a control character or to no character stands as \x1b, a line feed as \n.
std::string printable(std::string_view text);

}  // namespace spdld

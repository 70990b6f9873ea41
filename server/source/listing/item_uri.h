// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld::source {

// The uri relative to `root`, an absolute path, of the file that `text` from a table names: `text`
// itself, or what it has behind `root` where it is absolute, too. An error says why it is none: it
// is empty, too long, a directory or an address, or has '..' as a part or NUL.
Result<std::string_view> item_uri(std::string_view text, std::string_view root);

// Whether one of the parts between slashes is "..".
bool climbs(std::string_view path);

}  // namespace spdld::source

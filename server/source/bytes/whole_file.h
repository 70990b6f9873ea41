// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld::source {

// Replaces `path` as a whole or not at all; it is on the disk on return. Makes the directory that
// it lies in, and those above, for the daemon's user alone.
Status write_whole_file(const std::string& path, std::string_view text);

// kNotFound: there is none; kDataLoss: there is no such file, but something else.
Result<std::string> read_whole_file(const std::string& path);

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "source/file/access.h"

namespace spdld::source {

// The whole of a regular file that `access` lets its reader have. kResourceExhausted: it has more
// than `max_bytes`. No message says what is in it.
Result<std::string> read_text(const Access& access, const std::string& path, std::size_t max_bytes);

}  // namespace spdld::source

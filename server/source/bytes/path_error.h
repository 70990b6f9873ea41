// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld::source {

// "what PATH: why" for a failed system call. For EACCES and EPERM it looks for the first directory
// or file on the way that the daemon's uid may not pass, and says how to let it in.
Status path_error(int err, std::string_view what, const std::string& path);

// "drwxr-x---"
std::string mode_text(mode_t mode);

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdld::client {

// Why the kernel refuses this process the socket at `path` (EACCES), and the way out: whose the
// socket is, or the first directory on the way that may not be entered.
std::string denied_text(const std::string& path);

}  // namespace spdld::client

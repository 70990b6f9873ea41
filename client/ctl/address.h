// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace spdld::ctl {

// The runtime directory that is meant: `option`, else $SPDLD_ADDRESS, else /run/spdld.
std::string runtime_dir(const std::string& option);

// A connection to the daemon's control socket in `directory`. Throws Failure (kUnreachable) that
// says what was tried, what is in the way and what to do.
UniqueFd connect_control(const std::string& directory);

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "posix/unique_fd.h"

namespace spdld::ctl {

// The runtime directory that is meant: `option`, else $SPDLD_ADDRESS, else /run/spdld.
std::string runtime_dir(const std::string& option);

// A daemon that has stopped accepting must not stop us too.
inline constexpr std::chrono::milliseconds kConnectPatience{5000};

// A connection to the daemon's control socket in `directory`; waits for a place among those that
// are to be accepted for `patience`. Throws Failure (kUnreachable) that says what was tried, what
// is in the way and what to do.
UniqueFd connect_control(const std::string& directory,
                         std::chrono::milliseconds patience = kConnectPatience);

}  // namespace spdld::ctl

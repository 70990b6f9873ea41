// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace spdld {

// Two users of one daemon.
constexpr uid_t kAnn = 1001;
constexpr uid_t kBob = 1002;

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// An empty file in memory that may be sealed; nothing in it can be executed where the kernel knows
// of that. `flags` are more of MFD_*.
Result<UniqueFd> open_memfd(const char* name, unsigned flags = 0);

}  // namespace spdld::delivery

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::engine {

// Every op that this build knows: the one list there is.
Registry builtin_ops();

}  // namespace spdld::engine

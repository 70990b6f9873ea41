// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"

namespace spdld {

// Brings the next bytes of a text that is read once, from its beginning: how many of them it has
// put at the front of `into`, which is not empty; 0 when there are no more. One thread.
using ReadSome = std::function<Result<std::size_t>(std::span<char> into)>;

}  // namespace spdld

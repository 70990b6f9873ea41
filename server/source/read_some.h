// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "base/status.h"

namespace spdld::source {

// Brings the next bytes of a text that is read once, from its beginning: how many of them it has
// put at the front of `into`, which is not empty; 0 when there are no more. One thread.
using ReadSome = std::function<Result<std::size_t>(std::span<char> into)>;

// Reads what `fd`, which it does not own, has from where it stands on. kResourceExhausted: that is
// more than `max_bytes`; kCancelled: `stop` was asked to. `path` is for messages.
ReadSome read_descriptor(int fd, std::string path, std::uint64_t max_bytes,
                         std::stop_token stop = {});

}  // namespace spdld::source

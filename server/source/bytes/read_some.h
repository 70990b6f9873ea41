// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "base/read_some.h"

namespace spdld::source {

// Reads what `fd`, which it does not own, has from where it stands on. kResourceExhausted: that is
// more than `max_bytes`; kCancelled: `stop` was asked to. `path` is for messages.
ReadSome read_descriptor(int fd, std::string path, std::uint64_t max_bytes,
                         std::stop_token stop = {});

}  // namespace spdld::source

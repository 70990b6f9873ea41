// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "base/status.h"

namespace spdld::log {

// Sends spdlog to stderr. `format` is "text" or "json"; under systemd (JOURNAL_STREAM) text lines
// carry the <N> priority prefix and no time. Call once, before other threads start.
Status configure(const std::string& level, const std::string& format);

}  // namespace spdld::log

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "posix/unique_fd.h"
#include "spec/daemon_config.h"

namespace spdld::observe {

// A non-blocking listener where `config` says, which says somewhere. An error says what is in the
// way, and the way out.
Result<UniqueFd> listen_http(const spec::HttpConfig& config);

// Whether there could be one, but for who else listens there now.
Status check_http(const spec::HttpConfig& config);

}  // namespace spdld::observe

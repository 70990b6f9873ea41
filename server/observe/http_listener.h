// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "posix/unique_fd.h"
#include "spec/daemon_config.h"

namespace spdld::observe {

// A non-blocking listener at the address or path of `config`, which has one. An error names what is
// in the way, and the way out.
Result<UniqueFd> listen_http(const spec::HttpConfig& config);

// The error that listen_http() would have, but for another process that listens there now.
Status check_http(const spec::HttpConfig& config);

}  // namespace spdld::observe

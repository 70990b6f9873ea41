// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "observe/http_server.h"
#include "session/service.h"

namespace spdld::observe {

// Why the daemon does not take new jobs now, for who sends them; none: it does.
using NotReady = std::function<std::optional<std::string>()>;

// /metrics, /healthz and /readyz. A peer sees the metrics that its user may see; one that nobody is
// known of sees totals, or with `jobs` what an admin sees. They are at most a second old: who asks
// more often gets the same again. `service` outlives them.
HttpPages http_pages(session::Service& service, bool jobs, NotReady not_ready);

}  // namespace spdld::observe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "observe/http_server.h"
#include "session/service.h"

namespace spdld::observe {

// Why the daemon takes no new jobs now; none: it does.
using NotReady = std::function<std::optional<std::string>()>;

// /metrics, /healthz and /readyz. A peer sees the metrics that its user may see; a peer over TCP,
// whose user is not known, sees totals, or with `jobs` all that an admin sees. The text is made
// once a second at most for each user. `service` and `clock` outlive the pages.
HttpPages http_pages(session::Service& service, bool jobs, NotReady not_ready, const Clock& clock);

}  // namespace spdld::observe

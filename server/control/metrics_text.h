// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "job/request.h"

namespace spdld::control {

// What Prometheus scrapes, of all that this caller may see. Any thread calls it.
using MetricsText = std::function<std::string(const job::Caller&)>;

}  // namespace spdld::control

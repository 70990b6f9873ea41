// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/log.h"
#include "job/job_key.h"

namespace spdld::session {

// The fields of a log line about a job; `by` is the user that caused it. The key must outlive them.
inline log::About about(const job::JobKey& key, std::optional<uid_t> by = std::nullopt) {
  return {.job = key.job, .pipeline = key.pipeline, .uid = by};
}

}  // namespace spdld::session

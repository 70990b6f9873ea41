// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "store/store.h"

namespace spdld::store {

// The texts in which the store keeps what has no columns of its own. Writing fails for what is not
// UTF-8: it would not be the same when it came back. Reading fails for what an spdld did not write.
Result<std::string> request_text(const std::string& pipeline, const job::ApplyRequest& request);
Result<job::ApplyRequest> parse_request(const std::string& text);

// A job but for its key, `declared` and `kept_unix_ms`, which are columns.
Result<std::string> job_text(const StoredJob& job);
Result<StoredJob> parse_job(const std::string& text);

}  // namespace spdld::store

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "store/store.h"

// The texts in which the store keeps values without columns of their own. Reading fails with
// DATA_LOSS for a text that no spdld wrote.
namespace spdld::store {

// Writing a request or a job fails for names and texts that are not UTF-8: they would come back
// changed.
Result<std::string> request_text(const std::string& pipeline, const job::ApplyRequest& request);
Result<job::ApplyRequest> parse_request(const std::string& text);

// A job but for its key, `declared` and `kept_unix_ms`, which are columns. Refuses to read a job
// without a phase, or with a version in its schedule that has no phase.
Result<std::string> job_text(const StoredJob& job);
Result<StoredJob> parse_job(const std::string& text);

// Ends and failures are for people to read: bytes that are not UTF-8 are replaced. An end but for
// owner, job and pipeline, which are columns.
std::string end_text(const StoredEnd& end);
Result<StoredEnd> parse_end(const std::string& text);
std::string failure_text(const engine::FailureFacts& facts);
Result<engine::FailureFacts> parse_failure(const std::string& text);

}  // namespace spdld::store

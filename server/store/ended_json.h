// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "store/store.h"

namespace spdld::store {

// The texts in which the store keeps how a job ended and what failed in it. They are for people to
// read: bytes that are not UTF-8 are replaced, and nothing goes on from them.

// But for owner, job and pipeline, which are columns.
std::string end_text(const StoredEnd& end);
Result<StoredEnd> parse_end(const std::string& text);

std::string failure_text(const engine::FailureFacts& facts);
Result<engine::FailureFacts> parse_failure(const std::string& text);

}  // namespace spdld::store

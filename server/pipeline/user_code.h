// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/status.h"
#include "op/row_call.h"
#include "pipeline/pipeline_version.h"

namespace spdld::pipeline {

// How runs come to the processes that call users' own functions.
struct UserCode {
  // Carries rows to the function in the processes of this user. Any thread.
  std::function<std::shared_ptr<RowCaller>(uid_t user, const CallSpec& call)> open = nullptr;
  bool trusts_root = true;  // access.trust_root
};

// Whether the pipeline's functions may run for `user`: who applied it decides what runs as whoever
// reads it. OK where it calls none; else kPermissionDenied unless that user or root applied it.
Status check_author(const UserCode& code, const PipelineVersion& pipeline, uid_t user);

// One for each of the plan's calls, for a run whose rows are this user's. As check_author().
Result<RowCallers> open_callers(const UserCode& code, const PipelineVersion& pipeline, uid_t user);

}  // namespace spdld::pipeline

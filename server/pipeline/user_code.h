// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/status.h"
#include "job/pipeline_id.h"
#include "job/request.h"
#include "op/row_call.h"
#include "spec/pipeline_spec.h"

namespace spdld::pipeline {

// How runs come to the processes that call users' own functions.
struct UserCode {
  // Carries rows to the function in the processes of this user. Any thread.
  std::function<std::shared_ptr<RowCaller>(uid_t user, const CallSpec& call)> open = nullptr;
  bool trusts_root = true;  // access.trust_root
};

// A pipeline's text and who applied it.
struct Authored {
  const spec::PipelineSpec& spec;
  uid_t owner = 0;
  const job::ApplyRequest& request;
};

// Opens the way to a function or dataset of that text in the processes of `user`. Who applied it
// decides what runs as whoever reads it: kPermissionDenied unless that user or root did.
Result<std::shared_ptr<RowCaller>> open_caller(const UserCode& code, const Authored& text,
                                               const CallSpec& call, uid_t user);

struct PipelineVersion;

// Whether the pipeline's functions may run for `user`, as open_caller() says. OK where it calls
// none.
Status check_author(const UserCode& code, const PipelineVersion& pipeline, uid_t user);

// One for each of the plan's calls, for a run whose rows are this user's. As check_author().
Result<RowCallers> open_callers(const UserCode& code, const PipelineVersion& pipeline, uid_t user);

}  // namespace spdld::pipeline

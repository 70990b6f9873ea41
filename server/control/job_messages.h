// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/status.h"
#include "session/views.h"
#include "spdld/v1/control.pb.h"

// Jobs, their limits and their places, as messages and back; requests are checked here, before the
// session layer sees them. Any thread.
namespace spdld::control {

inline constexpr std::size_t kMaxReasonBytes = 1024;

Result<session::JobRequest> job_request(const v1::CreateJobRequest& message);
Result<session::LimitChange> limit_change(const v1::LimitRequest& message);

void fill(v1::StepAt* message, const session::StepAt& at);
void fill(v1::Job* message, const session::JobView& view);

}  // namespace spdld::control

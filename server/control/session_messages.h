// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session/views.h"
#include "spdld/v1/control.pb.h"

// Attached processes, stages of running jobs and what failed in them, as messages. Any thread.
namespace spdld::control {

void fill(v1::Session* message, const session::SessionView& view);
void fill(v1::Stage* message, const session::StageView& view);
void fill(v1::Failure* message, const session::FailureView& view);

}  // namespace spdld::control

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "session/views.h"
#include "spdld/v1/control.pb.h"

// Changes of running jobs, as messages and back; requests are checked here, before the session
// layer sees them. Any thread.
namespace spdld::control {

Result<session::SwapRequest> swap_request(const v1::SwapRequest& message);

void fill(v1::SwapResult* message, const session::SwapView& view);

}  // namespace spdld::control

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "session/timeline.h"

namespace spdld::session {

// From where on the timeline deals rows out as it does in the end: to so many shards, and with none
// left out. A change of phase alone deals nothing anew.
StepAt dealt_from(const Timeline& timeline);

}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/plan_facts.h"
#include "spdld/v1/control.pb.h"

// What a pipeline is compiled to, as a message. Any thread.
namespace spdld::control {

void fill(v1::Plan* message, const engine::PlanFacts& facts);

}  // namespace spdld::control

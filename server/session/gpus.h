// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pipeline/phase.h"

namespace spdld::session {

// Of its batches, fields lie on GPUs: they are asked for, and one is large enough.
bool delivers_to_gpus(const pipeline::Phase& phase);
// Where a consumer's GPU cannot be had or is full: on_unavailable is host.
bool may_stay_in_main_memory(const pipeline::Phase& phase);
// Tells the consumer's user that it does, and why. `has_device`: the consumer has a GPU of its own.
std::string in_main_memory_text(const pipeline::Phase& phase, const std::string& why,
                                bool has_device);

}  // namespace spdld::session

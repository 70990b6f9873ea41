// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "op/row_call.h"

namespace spdld::delivery {

// What a runner is told of its pool, as a JSON object.
std::string pool_json(const CallSpec& spec);

// Names the pool of a user's function: kKeyBytes hexadecimal digits, the same after a restart.
// `again` tells those apart whose digests would be one.
std::string pool_key(uid_t uid, const CallSpec& spec, unsigned again);

}  // namespace spdld::delivery

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "ctl/submission.h"

namespace spdld::ctl {

// A word as a shell would pass it on: without quotes, "~" and $NAME replaced by what they mean.
// Nothing is run for it.
std::string shell_value(std::string_view word, const EnvLookup& env);

}  // namespace spdld::ctl

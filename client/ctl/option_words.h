// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdld::ctl {

// What a loader is told of its arguments, in the words of the options of `consume` and `bench`.
std::string in_options(std::string text);

}  // namespace spdld::ctl

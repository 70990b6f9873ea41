// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdld::client {

// What operators are shown of this process, cut to a readable length; empty where it cannot be
// told.
std::string command_line();
std::string host_name();

}  // namespace spdld::client

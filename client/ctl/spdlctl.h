// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace spdld::ctl {

// The whole command: parses `arguments` (without the program's name), does what they say, prints
// to `out` and `err`, and returns the exit code. Nothing is thrown.
int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ctl/cli_fwd.h"

namespace spdld::ctl {

// What is wrong with the first word of a command line, `arguments`, that `app` could not place:
// which command or option it may have meant, and what there is. Empty: every word has its place.
std::string misplaced_word(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ctl/daemon.h"

namespace spdld::ctl {

// `shown`, which also starts what runs a user's functions where the daemon in `directory` asks for
// it, with this interpreter (empty: nothing is started). What it returns throws Failure.
Daemon::OnProgress starting_runners(Daemon::OnProgress shown, std::string python,
                                    std::string directory);

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdld/loader.h>

#include <string>

namespace spdld::ctl {

// A cursor as one word: "ORDER_DIGEST:SEED:EPOCH:POSITION:STEP:RUN:BRANCH:TURN", without the last
// three if the run is not known.
std::string cursor_text(const Cursor& cursor);

// Throws Failure (kWrongUsage) for what cursor_text() would not have written.
Cursor parse_cursor(const std::string& text);

}  // namespace spdld::ctl

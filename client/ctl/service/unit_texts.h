// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::ctl {

// The files of deploy/systemd/user.
// With @PROGRAM@, @CONFIG@ and @CONFINED@, which an install fills in, the last with kConfined or
// nothing.
extern const char* const kServiceUnit;
extern const char* const kConfined;
extern const char* const kControlSocketUnit;
extern const char* const kDataSocketUnit;

}  // namespace spdld::ctl

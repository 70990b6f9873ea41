// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spdld::ctl {

// The files of deploy/systemd/user.
extern const char* const kServiceUnit;  // with @PROGRAM@ and @CONFIG@, which an install fills in
extern const char* const kControlSocketUnit;
extern const char* const kDataSocketUnit;

}  // namespace spdld::ctl

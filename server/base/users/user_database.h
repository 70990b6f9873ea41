// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace spdld {

// The id of a user or group: a number as it stands, or a name that the machine's databases know
// (kNotFound: they do not; kUnavailable: they fail). May wait for a directory service.
Result<uid_t> find_user(const std::string& text);
Result<gid_t> find_group(const std::string& text);

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/trusted_users.h"
#include "job/pipeline_id.h"

namespace spdld::pipeline {

// The ids that `text` may mean when `caller` says it, the first that exists counts: NAME is the
// caller's own or else the shared one; /NAME is the shared one; USER/NAME, with a login name or a
// uid, is that user's, for that user and for admins. Errors: kPermissionDenied for another user's,
// kNotFound for a user that the machine does not know.
Result<std::vector<std::string>> pipeline_ids(const std::string& text, uid_t caller,
                                              const TrustedUsers& trusted);

}  // namespace spdld::pipeline

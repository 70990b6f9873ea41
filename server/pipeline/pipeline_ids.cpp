// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_ids.h"

#include "base/users/user_database.h"

namespace spdld::pipeline {

Result<std::vector<std::string>> pipeline_ids(const std::string& text, uid_t caller,
                                              const TrustedUsers& trusted) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos)
    return std::vector{job::pipeline_id({.uid = caller, .shared = false}, text), text};
  const std::string name = text.substr(slash + 1);
  if (slash == 0) return std::vector{name};
  SPDLD_ASSIGN(const uid_t user, find_user(text.substr(0, slash)));
  if (user != caller && !trusted.is_admin(caller))
    return error(Code::kPermissionDenied,
                 "pipeline '" + text + "' is another user's, and " + trusted.who(caller) +
                     " is not in access.admins: the shared one is '/" + name + "'");
  return std::vector{job::pipeline_id({.uid = user, .shared = false}, name)};
}

}  // namespace spdld::pipeline

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/users/credentials.h"

namespace spdld {

// The users for whom a reserve is kept, so that they get in to mend things however much others
// take: admins, the daemon's own user, and root. Where root is not trusted, it is among them only
// if it is named as an admin, also if the daemon runs as root: any container's root would be its
// own user. An immutable value.
class TrustedUsers {
 public:
  explicit TrustedUsers(std::vector<uid_t> admins = {}, bool trust_root = true)
      : admins_(std::move(admins)), trust_root_(trust_root), own_(::geteuid()) {}

  bool contains(uid_t uid) const { return (trust_root_ && uid == 0) || is_admin(uid); }
  // Those who may change what others own.
  bool is_admin(uid_t uid) const {
    return uid == Credentials::kDaemon || (uid == own_ && (trust_root_ || uid != 0)) ||
           std::find(admins_.begin(), admins_.end(), uid) != admins_.end();
  }
  // The user in a refusal: "uid 1000"; of a root that is not trusted, with the reason.
  std::string who(uid_t uid) const {
    std::string text = "uid " + std::to_string(uid);
    if (uid == 0 && !trust_root_) text += " (access.trust_root is false)";
    return text;
  }
  // kPermissionDenied for all but admins; `does` is what only they do to the daemon: "drain".
  Status check_admin(uid_t uid, const std::string& does) const {
    if (is_admin(uid)) return {};
    return Status(Code::kPermissionDenied, "only admins " + does + " the daemon, and " + who(uid) +
                                               " is not in access.admins: ask an admin");
  }

 private:
  std::vector<uid_t> admins_;
  bool trust_root_;
  uid_t own_;
};

}  // namespace spdld

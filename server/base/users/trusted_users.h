// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace spdld {

// The users for whom a reserve is kept, so that they get in to mend things however much others
// take: root, the daemon's own user, and admins. An immutable value.
class TrustedUsers {
 public:
  explicit TrustedUsers(std::vector<uid_t> admins = {})
      : admins_(std::move(admins)), own_(::geteuid()) {}

  bool contains(uid_t uid) const {
    return uid == 0 || uid == own_ ||
           std::find(admins_.begin(), admins_.end(), uid) != admins_.end();
  }

 private:
  std::vector<uid_t> admins_;
  uid_t own_;
};

}  // namespace spdld

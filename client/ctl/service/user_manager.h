// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ctl/service/patience.h"

namespace spdld::ctl {

// The user manager of systemd, by systemctl. Throws Failure whenever it does not do as asked.
class UserManager {
 public:
  // Throws Failure where there is none, with the way out.
  UserManager();

  // The directory in which launch=True looks for this user's daemon, and its user's units listen.
  const std::string& directory() const { return directory_; }

  // systemctl --user WORDS. With `patience`, throws OutOfPatience if it lasts too long; what
  // systemd has begun goes on then.
  void run(const std::vector<std::string>& words, Patience* patience = nullptr) const;
  // Properties of a unit, by name; of one that is not loaded, too.
  std::map<std::string, std::string> show(const std::string& unit) const;
  bool is_active(const std::string& unit) const { return show(unit)["ActiveState"] == "active"; }

 private:
  std::string directory_;
};

// $XDG_CONFIG_HOME/systemd/user, where a user's own units lie.
std::string user_unit_directory();
// Where the unit's daemon keeps what it knows, as its command line says.
std::string user_state_directory();
// Whether the user manager stays when the user has logged out.
bool lingers();

}  // namespace spdld::ctl

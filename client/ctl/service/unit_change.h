// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctl/service/user_manager.h"
#include "ctl/service/user_units.h"

namespace spdld::ctl {

// The units that an install writes in the place of those before, which take_back() brings back:
// their files, which of them are enabled, and whether they run. A file that is none of ours to read
// (a link) is lost with what it was. Owned by the install; uses the manager, which outlives it.
class UnitChange {
 public:
  // Notes how the units are. Throws Failure where that cannot be read.
  UnitChange(const UserManager& manager, std::string directory);

  // write_unit() into the directory.
  bool write(const UserUnit& unit);
  // Returns at once, while systemd may go on to stop what hangs. Says in a sentence's end, "; ...",
  // what became of the units: also if something fails.
  std::string take_back();

 private:
  struct Before {
    std::optional<std::string> text;  // none: there was no file
    bool enabled = false;
    bool runs = false;
  };

  void put_back(bool restarts);  // throws Failure

  const UserManager& manager_;
  const std::string directory_;
  std::map<std::string, Before> before_;  // by unit
  std::vector<std::string> written_;      // units
};

}  // namespace spdld::ctl

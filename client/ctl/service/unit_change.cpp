// SPDX-License-Identifier: Apache-2.0
#include "ctl/service/unit_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text/printable.h"
#include "ctl/failure.h"

namespace spdld::ctl {

UnitChange::UnitChange(const UserManager& manager, std::string directory)
    : manager_(manager), directory_(std::move(directory)) {
  for (const char* name : {kServiceName, kSocketNames[0], kSocketNames[1]}) {
    auto shown = manager_.show(name);
    const std::string& state = shown["ActiveState"];
    before_[name] = {.text = unit_text_at(directory_ + "/" + name),
                     .enabled = shown["UnitFileState"] == "enabled",
                     .runs = state == "active" || state == "activating" || state == "reloading"};
  }
}

bool UnitChange::write(const UserUnit& unit) {
  const bool changed = write_unit(directory_, unit);
  written_.push_back(unit.name);
  return changed;
}

void UnitChange::put_back(bool restarts) {
  std::vector<std::string> disable = {"disable"};
  std::vector<std::string> stop = {"stop", "--no-block"};
  for (const std::string& name : written_) {
    if (!before_[name].enabled && name != kServiceName) disable.push_back(name);
    if (!before_[name].runs) stop.push_back(name);
  }
  try {
    // Its starts are counted, and the next install's would be refused for a minute.
    manager_.run({"reset-failed", kServiceName});
  } catch (const Failure&) {  // systemd has not loaded it: there is no count
  }
  // While the files are there, which systemd asks for the links of units that are enabled.
  if (disable.size() > 1) manager_.run(disable);
  if (stop.size() > 2) manager_.run(stop);
  for (const std::string& name : written_) {
    if (const auto& text = before_[name].text) {
      write_unit(directory_, {name, *text});
      continue;
    }
    const std::string path = directory_ + "/" + name;
    std::error_code failed;
    std::filesystem::remove(path, failed);
    if (failed) {
      throw Failure(kFailed,
                    fmt::format("cannot remove {}: {}", printable(path), failed.message()));
    }
  }
  manager_.run({"daemon-reload"});
  if (restarts) manager_.run({"restart", "--no-block", kServiceName});
}

std::string UnitChange::take_back() {
  if (written_.empty()) return {};
  const bool is_first =
      std::ranges::none_of(before_, [](const auto& unit) { return unit.second.text.has_value(); });
  // Where not even the sockets came up, it runs as before.
  const bool restarts = before_[kServiceName].runs && !manager_.is_active(kServiceName);
  try {
    put_back(restarts);
  } catch (const Failure& failure) {
    return fmt::format(
        "; its units are not all taken back, as {}: 'spdlctl service remove' does it",
        failure.what());
  }
  if (is_first) return "; its units are removed again";
  return restarts ? "; the units are as before again, and the service is started anew with them"
                  : "; the units are as before again";
}

}  // namespace spdld::ctl

// SPDX-License-Identifier: Apache-2.0
#include "ctl/service/user_manager.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "base/text/printable.h"
#include "ctl/failure.h"
#include "ctl/program/program.h"

namespace spdld::ctl {
namespace {

constexpr char kWayOut[] =
    "; without a service, Loader(..., launch=True) starts a daemon when it needs one";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string home() {
  if (const std::string named = variable("HOME"); named.starts_with('/')) return named;
  if (const passwd* entry = ::getpwuid(::geteuid()); entry != nullptr) return entry->pw_dir;
  throw Failure(kFailed, "$HOME is not set, and there is no home of this user: set it");
}

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return printable(text);
}

}  // namespace

UserManager::UserManager() {
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  if (runtime.empty()) {
    throw Failure(kFailed, fmt::format("$XDG_RUNTIME_DIR is not set: systemd has a manager for "
                                       "users who log in by ssh or at a console, not by su or "
                                       "sudo{}",
                                       kWayOut));
  }
  struct stat found {};
  if (::stat(runtime.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::geteuid()) {
    throw Failure(kFailed, fmt::format("$XDG_RUNTIME_DIR is {}, which is no directory of uid {}{}",
                                       printable(runtime), ::geteuid(), kWayOut));
  }
  const Ran ran = run_program({"systemctl", "--user", "show-environment"}, Errors::kInText);
  if (ran.error != 0) {
    throw Failure(kFailed, fmt::format("there is no systemd here: systemctl: {}{}",
                                       std::generic_category().message(ran.error), kWayOut));
  }
  if (!ran.ok()) {
    throw Failure(kFailed, fmt::format("no user manager of systemd answers here: {}{}",
                                       one_line(ran.text), kWayOut));
  }
  directory_ = fmt::format("{}/spdld-{}", runtime, ::geteuid());
}

void UserManager::run(const std::vector<std::string>& words, Patience* patience) const {
  std::vector<std::string> command = {"systemctl", "--user"};
  command.insert(command.end(), words.begin(), words.end());
  const Ran ran =
      patience == nullptr ? run_program(command, Errors::kInText) : patience->run(command);
  if (ran.ok()) return;
  std::string hint;
  if (!variable("XDG_CONFIG_HOME").empty())
    hint = "; is $XDG_CONFIG_HOME the manager's, too? 'systemctl --user show-environment' tells";
  throw Failure(
      kFailed, fmt::format("'{}' failed: {}{}", fmt::join(command, " "), one_line(ran.text), hint));
}

std::map<std::string, std::string> UserManager::show(const std::string& unit) const {
  const Ran ran = run_program({"systemctl", "--user", "show", unit}, Errors::kInText);
  std::map<std::string, std::string> properties;
  std::istringstream lines(ran.text);
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      properties.try_emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return properties;
}

std::string user_unit_directory() {
  const std::string given = variable("XDG_CONFIG_HOME");
  return (given.starts_with('/') ? given : home() + "/.config") + "/systemd/user";
}

std::string user_state_directory() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  return home() + "/.local/state/spdld/" + host.data();
}

bool lingers() {
  const Ran ran =
      run_program({"loginctl", "show-user", std::to_string(::geteuid())}, Errors::kInText);
  return ran.ok() && ran.text.find("Linger=yes\n") != std::string::npos;
}

}  // namespace spdld::ctl

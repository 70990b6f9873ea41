// SPDX-License-Identifier: Apache-2.0
#include "socket_owner.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "text.h"

namespace spdld::client {
namespace {

std::string user_name(uid_t uid) {
  const passwd* found = ::getpwuid(uid);
  return found != nullptr ? found->pw_name : std::to_string(uid);
}

std::string group_name(gid_t gid) {
  const group* found = ::getgrgid(gid);
  return found != nullptr ? found->gr_name : std::to_string(gid);
}

}  // namespace

std::string denied_text(const std::string& path) {
  struct stat info {};
  std::string thing = path;
  while (::stat(thing.c_str(), &info) != 0 && thing.find('/') != std::string::npos && thing != "/")
    thing = thing.substr(0, std::max<std::size_t>(thing.rfind('/'), 1));
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return join("permission denied for user ", user_name(::geteuid()), ": ", thing,
              " belongs to user ", user_name(info.st_uid), " and group ", group_name(info.st_gid),
              " (mode ", mode.data(),
              "); join that group (and log in again), or ask the daemon's owner");
}

}  // namespace spdld::client

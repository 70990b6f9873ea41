// SPDX-License-Identifier: Apache-2.0
#include "socket_owner.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "text.h"

namespace spdld::client {
namespace {

// A group of many members has a long entry.
constexpr std::size_t kMaxEntryBytes = std::size_t{1} << 20;

// Of a database entry that its caller looks up into `buffer`; a number where there is no name.
template <typename Entry, typename Id, typename LookUp>
std::string name_or_number(Id id, char* Entry::*name, const LookUp& look_up) {
  Entry entry{};
  Entry* found = nullptr;
  std::vector<char> buffer(1024);
  while (look_up(id, &entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < kMaxEntryBytes)
    buffer.resize(2 * buffer.size());
  return found != nullptr ? std::string(found->*name) : std::to_string(id);
}

std::string user_name(uid_t uid) {
  return name_or_number<passwd>(uid, &passwd::pw_name, ::getpwuid_r);
}

std::string group_name(gid_t gid) {
  return name_or_number<group>(gid, &group::gr_name, ::getgrgid_r);
}

}  // namespace

std::string denied_text(const std::string& path) {
  struct stat info {};
  std::string thing = path;
  while (::stat(thing.c_str(), &info) != 0 && thing.find('/') != std::string::npos && thing != "/")
    thing = thing.substr(0, std::max<std::size_t>(thing.rfind('/'), 1));
  // A directory is passed, a socket written to. Root's own group is nobody's to join.
  const mode_t wanted = S_ISDIR(info.st_mode) ? S_IXGRP : S_IWGRP;
  const bool helps = info.st_gid != 0 && (info.st_mode & wanted) != 0;
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
  return join("permission denied for user ", user_name(::geteuid()), ": ", thing,
              " belongs to user ", user_name(info.st_uid), " and group ", group_name(info.st_gid),
              " (mode ", mode.data(), "); ", helps ? "join that group (and log in again), or " : "",
              "ask the daemon's owner");
}

}  // namespace spdld::client

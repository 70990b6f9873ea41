// SPDX-License-Identifier: Apache-2.0
#include "base/users/credentials.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace spdld {
namespace {

constexpr std::size_t kMostGroups = 65536;  // NGROUPS_MAX

std::vector<gid_t> sorted(std::vector<gid_t> groups) {
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

Result<std::vector<gid_t>> groups_of_peer(int socket) {
  std::vector<gid_t> groups(32);
  while (true) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return sorted(std::move(groups));
    }
    if (errno == ENOPROTOOPT) return std::vector<gid_t>();  // before Linux 4.13
    const std::size_t wanted = bytes / sizeof(gid_t);
    if (errno != ERANGE || wanted <= groups.size() || wanted > kMostGroups)
      return tl::unexpected(errno_status(errno, "asking the kernel for the groups of a peer"));
    groups.resize(wanted);
  }
}

}  // namespace

bool Credentials::in_group(gid_t group) const {
  if (group == kUnmapped) return false;
  return gid == group || std::binary_search(groups.begin(), groups.end(), group);
}

std::string Credentials::text() const {
  std::string text = "uid " + std::to_string(uid) + " (gid " + std::to_string(gid);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += i == 0 ? (groups.size() == 1 ? ", group " : ", groups ")
                   : (i + 1 == groups.size() ? " and " : ", ");
    text += std::to_string(groups[i]);
  }
  return text + ")";
}

Credentials Credentials::own() {
  std::vector<gid_t> groups(kMostGroups);
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  return {.uid = ::geteuid(), .gid = ::getegid(), .groups = sorted(std::move(groups))};
}

Credentials Credentials::of_user(uid_t uid) {
  Credentials credentials{.uid = uid};
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(1024);
  while (::getpwuid_r(uid, &entry, text.data(), text.size(), &found) == ERANGE &&
         text.size() < (std::size_t{1} << 20))
    text.resize(text.size() * 2);
  if (found == nullptr) return credentials;
  credentials.gid = found->pw_gid;
  std::vector<gid_t> groups(64);
  auto count = static_cast<int>(groups.size());
  while (::getgrouplist(found->pw_name, found->pw_gid, groups.data(), &count) < 0) {
    if (count <= static_cast<int>(groups.size()) || count > static_cast<int>(kMostGroups))
      return credentials;
    groups.resize(static_cast<std::size_t>(count));
  }
  groups.resize(static_cast<std::size_t>(count));
  credentials.groups = sorted(std::move(groups));
  return credentials;
}

Result<Peer> peer_of(int socket) {
  ucred process{};
  socklen_t bytes = sizeof process;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &process, &bytes) != 0)
    return tl::unexpected(errno_status(errno, "asking the kernel who is connected"));
  SPDLD_ASSIGN(std::vector<gid_t> groups, groups_of_peer(socket));
  return Peer{{.uid = process.uid, .gid = process.gid, .groups = std::move(groups)}, process.pid};
}

}  // namespace spdld

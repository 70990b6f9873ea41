// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace spdld {

// A process's user, group and supplementary groups: what decides which files it may open. A plain
// value.
struct Credentials {
  // The kernel shows an id that has no meaning here (of another user namespace, say) as this one.
  // It is nobody in particular, so that it matches no owner and no group.
  static constexpr uid_t kUnmapped = 65534;
  // The daemon itself, in what it does of its own accord. No process has it, so that a daemon that
  // runs as root can tell itself from root.
  static constexpr uid_t kDaemon = static_cast<uid_t>(-1);

  uid_t uid = kUnmapped;
  gid_t gid = kUnmapped;
  std::vector<gid_t> groups = {};  // sorted, each once; `gid` need not be among them

  bool is_user(uid_t other) const { return uid == other && other != kUnmapped; }
  bool in_group(gid_t group) const;
  // "uid 1000 (gid 1000, groups 27 and 100)"
  std::string text() const;

  // Of this process.
  static Credentials own();
  // As the user database has them: what a login would give. A user that it does not know has no
  // group. May wait for a directory service.
  static Credentials of_user(uid_t uid);

  friend bool operator==(const Credentials&, const Credentials&) = default;
};

// The number to show for `uid`: what the daemon does is its own user's.
inline uid_t shown_uid(uid_t uid) { return uid == Credentials::kDaemon ? ::geteuid() : uid; }

// The process at the other end of a Unix socket, from SO_PEERCRED and SO_PEERGROUPS: its
// credentials as they were when it connected.
struct Peer : Credentials {
  pid_t pid = 0;  // 0: it lives in a PID namespace that this one cannot see
};

Result<Peer> peer_of(int socket);

}  // namespace spdld

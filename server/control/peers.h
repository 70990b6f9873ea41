// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/trusted_users.h"
#include "session/views.h"

namespace spdld::control {

// Who is at the other end of each control connection. gRPC names a connection that it was given by
// descriptor "fd:N"; this table says whose N is. Owned by ControlServer; thread-safe.
//
// Why the number is proof enough, although descriptors are reused: an entry is written before gRPC
// learns of the descriptor and is overwritten when the kernel gives the same number to a later
// accept(). The kernel does so only after gRPC closed the earlier one, and gRPC closes a
// connection's descriptor when the last call that came over it is destroyed: the call holds its
// stream, the stream its transport, the transport its endpoint. So while a call can ask, its number
// is its own. That is gRPC's doing and not its promise, hence a test (control_server_test.cpp)
// that holds a call of a dead connection and shows that its number stays taken.
class Peers {
 public:
  // The bounds keep users who open connections without end from taking all of the daemon's
  // descriptors; the first does not hold for `trusted`.
  Peers(std::size_t max_connections, std::size_t max_per_uid, TrustedUsers trusted = TrustedUsers())
      : max_connections_(max_connections),
        max_per_uid_(max_per_uid),
        trusted_(std::move(trusted)) {}

  // Reads the credentials of a connected Unix socket and enters it. Refuses at the limits, and what
  // is no Unix socket.
  Result<job::Caller> admit(int fd) SPDLD_EXCLUDES(mutex_);

  // `peer` is what gRPC calls the connection. Nothing if it is none of ours.
  std::optional<job::Caller> find(std::string_view peer) const SPDLD_EXCLUDES(mutex_);

  // Connections that are still open.
  std::size_t open() SPDLD_EXCLUDES(mutex_);
  // The same by user; those who have none are left out.
  std::map<uid_t, std::size_t> users() SPDLD_EXCLUDES(mutex_);
  std::size_t max_per_uid() const { return max_per_uid_; }

 private:
  struct Entry {
    job::Caller caller;
    std::uint64_t socket = 0;  // its cookie tells whether the number still means this connection
  };

  void forget_closed() SPDLD_REQUIRES(mutex_);

  const std::size_t max_connections_;
  const std::size_t max_per_uid_;
  const TrustedUsers trusted_;
  mutable Mutex mutex_;
  std::map<int, Entry> entries_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::control

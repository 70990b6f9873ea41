// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace spdld::delivery {

// Who is at the other end of a Unix socket, as the kernel says.
struct Peer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;  // 0: it lives in a PID namespace that this one cannot see
};

Result<Peer> peer_of(int socket);

// Proves that this is the only daemon of a runtime directory. Without it a second daemon would take
// the sockets over, and delete them when it ends. Held until destruction; a crash releases it.
class RuntimeLock {
 public:
  // Makes the directory, for this user alone (0700), if it is not there: who may enter it may
  // connect. kAlreadyExists names the pid that has it.
  static Result<RuntimeLock> take(const std::string& runtime_dir);

 private:
  explicit RuntimeLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// A non-blocking listener at `path` with these permissions; `type` is SOCK_STREAM or
// SOCK_SEQPACKET. What a crashed daemon left there is replaced, which is safe because the caller
// holds the directory's RuntimeLock: passing it proves that. Anything but a socket is left alone.
Result<UniqueFd> listen_unix(const RuntimeLock& lock, const std::string& path, int type,
                             mode_t mode);

// Non-blocking and close-on-exec. kUnavailable: nobody is waiting any more.
Result<UniqueFd> accept_unix(int listener);

}  // namespace spdld::delivery

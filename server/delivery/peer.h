// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/lock_file.h"
#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// Proves that this is the only daemon of a runtime directory. Without it a second daemon would take
// the sockets over, and delete them when it ends. Held until destruction.
class RuntimeLock {
 public:
  // Makes the directory, for this user alone (0700), if it is not there: who may enter it may
  // connect. kAlreadyExists names who has it. kPermissionDenied: others could replace the
  // sockets in it.
  static Result<RuntimeLock> take(const std::string& runtime_dir);

  void release() const noexcept { lock_.release(); }

 private:
  explicit RuntimeLock(LockFile lock) : lock_(std::move(lock)) {}
  LockFile lock_;
};

// A non-blocking listener at `path` with these permissions; `type` is SOCK_STREAM or
// SOCK_SEQPACKET. What a crashed daemon left there is replaced, which is safe because the caller
// holds the directory's RuntimeLock: passing it proves that. Anything but a socket is left alone.
Result<UniqueFd> listen_unix(const RuntimeLock& lock, const std::string& path, int type,
                             mode_t mode);

// The same for a path that no lock is about. kAlreadyExists: somebody listens there.
Result<UniqueFd> listen_unix_unlocked(const std::string& path, int type, mode_t mode);

// The file that a socket's path names; no other file has its inode while the socket is open. An
// empty path: none.
struct SocketFile {
  std::string path = {};
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const SocketFile&, const SocketFile&) = default;
};
SocketFile socket_file_at(const std::string& path);
// Does nothing where another file, or none, has that path by now.
void remove_socket(const SocketFile& file);

// Of a listener of any kind: non-blocking and close-on-exec. kUnavailable: nobody is waiting any
// more.
Result<UniqueFd> accept_connection(int listener);

}  // namespace spdld::delivery

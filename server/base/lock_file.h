// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld {

// A file that one process at a time has the lock of, and that says which. Held until destruction.
// The kernel (over NFS: the server) releases the lock when the process dies, so that no stale one
// is left; but while a thread of a killed process hangs in the kernel, it does not. Who comes then
// sees by what the file says that nobody is behind the lock, and puts a file of its own in the
// place of this one.
class LockFile {
 public:
  enum class Kind {
    kFlock,
    // Of the open file, unlike fcntl()'s other locks, and over NFS it holds between hosts, as
    // flock() need not.
    kOfd,
  };

  // Makes the file if it is not there. kAlreadyExists: another process has it, and the message is
  // who: "pid 12 on host a, since …".
  static Result<LockFile> take(const std::string& path, Kind kind);
  // Which process has the kOfd lock of a file that this one may not write to; empty if none has.
  static std::string holder(const std::string& path);

  // Gives the lock back. Safe in a signal handler.
  void release() const noexcept;

 private:
  LockFile(UniqueFd fd, Kind kind) : fd_(std::move(fd)), kind_(kind) {}

  UniqueFd fd_;
  Kind kind_;
};

}  // namespace spdld

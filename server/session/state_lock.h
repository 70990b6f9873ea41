// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld::session {

// Keeps a second daemon away from a state directory: two would overwrite each other's jobs. Owned
// by the Store; held until destruction. The kernel (over NFS: the server) releases it when its
// process dies, however that dies, so that no stale lock is left; what the file says is for
// messages alone.
class StateLock {
 public:
  // kAlreadyExists names who has the directory. Where no lock can be had, the daemon goes without:
  // warning() says so.
  static Result<StateLock> take(const std::string& state_dir);

  bool held() const { return static_cast<bool>(fd_); }
  const std::string& warning() const { return warning_; }

 private:
  StateLock(UniqueFd fd, std::string warning) : fd_(std::move(fd)), warning_(std::move(warning)) {}

  UniqueFd fd_;
  std::string warning_;
};

}  // namespace spdld::session

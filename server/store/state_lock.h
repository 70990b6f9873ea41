// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/lock_file.h"
#include "base/status.h"

namespace spdld::store {

// Keeps a second daemon away from a state directory: two would overwrite each other's jobs. Owned
// by the Store; held until destruction.
class StateLock {
 public:
  // kAlreadyExists names who has the directory. Where no lock can be had, the daemon goes without:
  // warning() says so.
  static Result<StateLock> take(const std::string& state_dir);

  bool held() const { return lock_.has_value(); }
  void release() const noexcept {
    if (lock_) lock_->release();
  }
  const std::string& warning() const { return warning_; }

 private:
  StateLock(std::optional<LockFile> lock, std::string warning)
      : lock_(std::move(lock)), warning_(std::move(warning)) {}

  std::optional<LockFile> lock_;
  std::string warning_;
};

}  // namespace spdld::store

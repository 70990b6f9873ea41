// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"

namespace spdld {

// Counts the bytes of one kind that the daemon holds for each user, and limits each user's sum. Its
// shares keep it alive. Thread-safe; no other lock is taken under its own.
class UserBytes {
 public:
  // The part of a user's sum that one holder has, given back when the share ends. Used by one
  // thread at a time.
  class Share {
   public:
    Share(std::shared_ptr<UserBytes> all, uid_t uid) : all_(std::move(all)), uid_(uid) {}
    ~Share() { remove(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // False: the user's sum would exceed the limit, and nothing was added.
    bool add(std::uint64_t bytes);
    void remove(std::uint64_t bytes);  // at most what was added
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t limit() const { return all_->limit(); }

   private:
    const std::shared_ptr<UserBytes> all_;
    const uid_t uid_;
    std::uint64_t bytes_ = 0;
  };

  explicit UserBytes(std::uint64_t limit_per_user) : limit_(limit_per_user) {}

  std::uint64_t limit() const { return limit_; }
  // Bytes by user; users without any are left out.
  std::map<uid_t, std::uint64_t> used() const SPDLD_EXCLUDES(mutex_);

 private:
  bool add(uid_t uid, std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  void remove(uid_t uid, std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);

  const std::uint64_t limit_;
  mutable Mutex mutex_;
  std::map<uid_t, std::uint64_t> used_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld

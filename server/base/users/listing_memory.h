// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/trusted_users.h"

namespace spdld {

// Counts the memory of datasets that are open: names of items, values, indexes, lengths. It counts
// for the user who had a dataset listed, whoever else reads it. One user may have a limited sum,
// unless it is a trusted one, and all users together kUsers times as much. Its shares keep it
// alive. Thread-safe; no other lock is taken under its own.
class ListingMemory : public std::enable_shared_from_this<ListingMemory> {
 public:
  static constexpr std::uint64_t kUsers = 4;

  // The memory of one listing, given back when the share ends. Thread-safe.
  class Share {
   public:
    Share(std::shared_ptr<ListingMemory> all, uid_t uid) : all_(std::move(all)), uid_(uid) {}
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // To be asked before memory is taken: it has so much from now on, more or less than before.
    // kResourceExhausted, with the limit's key, its figures and the way out: nothing has changed.
    Status resize(std::uint64_t bytes);
    // It has at least so much: where that is more than before, some more than that if there is
    // room, so that what grows little by little does not ask each time.
    Status cover(std::uint64_t bytes);
    std::uint64_t bytes() const;
    // Another one, of nothing yet, for this user.
    std::shared_ptr<Share> of(uid_t uid) const { return all_->share(uid); }

   private:
    friend class ListingMemory;
    const std::shared_ptr<ListingMemory> all_;
    const uid_t uid_;
    std::uint64_t bytes_ = 0;  // guarded by the mutex of `all_`
  };
  using SharePtr = std::shared_ptr<Share>;

  ListingMemory(std::uint64_t limit_per_user, TrustedUsers trusted)
      : limit_(limit_per_user), trusted_(std::move(trusted)) {}

  static std::shared_ptr<ListingMemory> unbounded() {
    return std::make_shared<ListingMemory>(std::uint64_t{1} << 60, TrustedUsers());
  }

  SharePtr share(uid_t uid) { return std::make_shared<Share>(shared_from_this(), uid); }
  // None: the user is bound by what all have together alone.
  std::optional<std::uint64_t> limit(uid_t uid) const;
  // Bytes by user; users without any are left out.
  std::map<uid_t, std::uint64_t> used() const SPDLD_EXCLUDES(mutex_);

 private:
  Status change(Share& share, std::uint64_t bytes) SPDLD_REQUIRES(mutex_);

  const std::uint64_t limit_;
  const TrustedUsers trusted_;
  mutable Mutex mutex_;
  std::uint64_t all_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, std::uint64_t> used_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"

namespace spdld {

// What the buffers of each user take of memory, of which one user may have a limited sum. Who gets
// no room waits in the user's line, first come first served; what takes more than the limit gets
// its room when the user has no other. So the limit says when a buffer is made and never whether,
// as long as who has a share waits for nothing that takes one.
//
// Thread-safe; shared by those who have shares or wait.
class BufferMemory : public std::enable_shared_from_this<BufferMemory> {
 public:
  // A part of a user's sum, given back when it ends. Used by one thread at a time.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { swap(other); }
    Share& operator=(Share&& other) noexcept {
      Share(std::move(other)).swap(*this);
      return *this;
    }
    ~Share();

    std::uint64_t bytes() const { return bytes_; }
    void swap(Share& other) noexcept;

   private:
    friend class BufferMemory;
    Share(std::shared_ptr<BufferMemory> all, uid_t uid, std::uint64_t bytes)
        : all_(std::move(all)), uid_(uid), bytes_(bytes) {}

    std::shared_ptr<BufferMemory> all_;
    uid_t uid_ = 0;
    std::uint64_t bytes_ = 0;
  };

  // Who asks until it gets a share. Keeps its place in the line from the first time that it asks in
  // vain. Used by one thread at a time.
  class Waiter {
   public:
    Waiter(std::shared_ptr<BufferMemory> all, uid_t uid) : all_(std::move(all)), uid_(uid) {}
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    // None: there is no room yet, or others came first.
    std::optional<Share> take(std::uint64_t bytes);
    // How many of the line come before it; 0: it is the next.
    std::size_t place() const;

   private:
    const std::shared_ptr<BufferMemory> all_;
    const uid_t uid_;
    bool stands_ = false;  // in the line
  };

  explicit BufferMemory(std::uint64_t limit_per_user) : limit_(limit_per_user) {}

  std::uint64_t limit() const { return limit_; }
  // For who does not wait. None: there is no room, or somebody waits for it.
  std::optional<Share> take(uid_t uid, std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  // Bytes by user; users without any are left out.
  std::map<uid_t, std::uint64_t> used() const SPDLD_EXCLUDES(mutex_);

 private:
  struct User {
    std::uint64_t taken_bytes = 0;
    std::deque<const Waiter*> line;
  };

  bool has_room(const User& user, std::uint64_t bytes) const;
  Share share(User& user, uid_t uid, std::uint64_t bytes) SPDLD_REQUIRES(mutex_);
  void give_back(uid_t uid, std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  void leave(uid_t uid, const Waiter& waiter) SPDLD_REQUIRES(mutex_);
  void forget_idle(std::map<uid_t, User>::iterator user) SPDLD_REQUIRES(mutex_);

  const std::uint64_t limit_;
  mutable Mutex mutex_;
  std::map<uid_t, User> users_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace spdld {

// The memory of each user's buffers, of which one user may have a limited sum. A half of it is for
// buffers of up to an eighth of the sum, the other half for larger ones: a few huge files must not
// keep a thousand small ones waiting. Where a half has no room, requests for it wait in its line,
// first come first served; one that is larger than the half gets its room when the user has no
// other of those. So the limit says when a buffer is made and never whether, as long as the holder
// of a share waits for nothing that needs another one.
//
// Thread-safe; shared by its shares and by those that wait.
class BufferMemory : public std::enable_shared_from_this<BufferMemory> {
 public:
  // A part of a user's sum, given back when it ends. That may call others' `granted`, so it must
  // not be under a lock that these take. Used by one thread at a time.
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

  // A request that may wait, one at a time. It leaves the line when it is destroyed. Used by one
  // thread at a time.
  class Request {
   public:
    Request(std::shared_ptr<BufferMemory> all, uid_t uid) : all_(std::move(all)), uid_(uid) {}
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    // The share, if there is room or it was granted meanwhile. None: `granted` will be called once,
    // by the thread that makes room; then take() has it.
    std::optional<Share> take(std::uint64_t bytes, std::function<void()> granted);

   private:
    friend class BufferMemory;

    const std::shared_ptr<BufferMemory> all_;
    const uid_t uid_;
    // Guarded by the mutex of `all_`.
    bool waits_ = false;
    std::list<Request*>::iterator place_;  // in its half's line, while it waits
    std::uint64_t wanted_bytes_ = 0;
    std::function<void()> granted_;
    Share share_;  // that was granted
  };

  explicit BufferMemory(std::uint64_t limit_per_user) : limit_(limit_per_user) {}

  std::uint64_t limit() const { return limit_; }
  // Without waiting. None: its half has no room, or others wait for that.
  std::optional<Share> take(uid_t uid, std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  // Bytes by user; users without any are left out.
  std::map<uid_t, std::uint64_t> used() const SPDLD_EXCLUDES(mutex_);

 private:
  struct Half {
    std::uint64_t taken_bytes = 0;
    std::list<Request*> line;
  };
  struct User {
    Half small;
    Half large;

    std::uint64_t taken_bytes() const { return small.taken_bytes + large.taken_bytes; }
  };
  // To be called under no lock.
  using Calls = std::vector<std::function<void()>>;

  Half& half_of(User& user, std::uint64_t bytes) const;
  bool has_room(const Half& half, std::uint64_t bytes) const;
  Share share(Half& half, uid_t uid, std::uint64_t bytes) SPDLD_REQUIRES(mutex_);
  void give_back(uid_t uid, std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  // After room was made in this half, or its line's first has left.
  Calls grant(std::map<uid_t, User>::iterator user, Half& half) SPDLD_REQUIRES(mutex_);

  const std::uint64_t limit_;
  mutable Mutex mutex_;
  std::map<uid_t, User> users_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld

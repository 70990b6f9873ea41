// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace spdld::pipeline {

// How far a listing, or a batch, has come, by items or rows, and the pools of users' functions that
// it waits for and no process serves (RowCaller::wanted); false gives it up.
using ListingProgress = std::function<bool(std::uint64_t done, const std::string& what,
                                           const std::vector<std::string>& pools)>;

// The answer of a listing, behind a pointer: its caller knows the type.
using ListingOutcome = Result<std::shared_ptr<const void>>;

// One that asks for listings without a thread that waits for them: an attach, or a call that polls.
// It asks, is told that the listing is under way, and asks the same again once `tell` was called.
// Each outcome stays for as long as the asker does, so that all that it asked before is answered at
// once then. The destructor withdraws: a listing that nobody asks for any more is given up.
//
// Owned by the caller that asks. Thread-safe.
class ListingAsker {
 public:
  // `tell` is called once for each time that ask() said "under way", from a thread of the listings
  // and under no lock of theirs. The destructor waits for a call that has begun, unless it runs
  // within that call: `tell` should hand over to another thread and return.
  explicit ListingAsker(std::function<void()> tell);
  ~ListingAsker();
  ListingAsker(const ListingAsker&) = delete;
  ListingAsker& operator=(const ListingAsker&) = delete;

  struct Doing {
    enum class State { kNothing, kWaits, kRuns };

    std::uint64_t items = 0;
    std::string what;                     // for people
    std::vector<std::string> pools = {};  // as ListingProgress has them
    State state = State::kNothing;

    bool operator==(const Doing&) const = default;
  };
  // Of the listing that was asked for last.
  Doing doing() const;

 private:
  friend class Listings;
  struct State;
  const std::shared_ptr<State> state_;
};

// The listings of datasets that are under way, each on a thread of its own that storage may keep
// for as long as it likes. Callers that ask for the same one meanwhile wait for it together.
//
// A user has a bounded number of them at once, by order of asking. One that does not come on is
// left out of that number, so that a directory that hangs does not hold back the user's others;
// these threads have a bound of their own. A listing that nobody wants any more is told so by its
// progress; until its thread comes back, it counts as one of its user's.
//
// Thread-safe; a leaf among the locks. Owned by the catalogue. The destructor gives up all and
// waits for the threads.
class Listings {
 public:
  using Work = std::function<ListingOutcome(const ListingProgress&)>;

  struct Bounds {
    int per_user = 4;           // that come on
    int threads_per_user = 16;  // with those that do not
    std::size_t threads = 256;  // of all users; beyond it, a user who has none gets one
    std::chrono::nanoseconds stalled_after = std::chrono::milliseconds(500);
  };

  explicit Listings(Bounds bounds) : bounds_(bounds) {}
  ~Listings();

  // The outcome of `work`, or of the same work that somebody asked for before: that `key` tells.
  // None: it is under way, or waits for its turn, and the asker is told. `uid`: whose it is. `work`
  // runs on a thread of its own, and may outlive the asker. kUnavailable after stop().
  std::optional<ListingOutcome> ask(uid_t uid, const std::string& key, Work work,
                                    const ListingAsker& asker) SPDLD_EXCLUDES(mutex_);

  // Begins listings that may begin because others have not come on. To be called about once a
  // second; callers that poll do it as well.
  void tick() SPDLD_EXCLUDES(mutex_);

  // Gives up all: every asker is told kUnavailable, now and from now on. Waits for nothing.
  // Idempotent.
  void stop() SPDLD_EXCLUDES(mutex_);
  // Whether all threads have ended, for which it waits so long.
  bool idle_within(std::chrono::nanoseconds grace) SPDLD_EXCLUDES(mutex_);

  // Whether there are some of this user, and none of them has come on for so long.
  bool stalled_for(uid_t uid, std::chrono::nanoseconds time) const SPDLD_EXCLUDES(mutex_);
  // Threads, by user; users without any are left out.
  std::map<uid_t, int> users() const SPDLD_EXCLUDES(mutex_);
  int most_per_user() const { return bounds_.per_user; }

 private:
  using AskerPtr = std::shared_ptr<ListingAsker::State>;
  struct Listing;
  using ListingPtr = std::shared_ptr<Listing>;
  struct User {
    std::deque<ListingPtr> waiting;
    std::vector<ListingPtr> running;
  };

  static bool is_wanted(const Listing& listing);
  bool may_begin(const User& user) const SPDLD_REQUIRES(mutex_);
  void begin_waiting() SPDLD_REQUIRES(mutex_);
  // False: there is no thread for it.
  bool begin(const ListingPtr& listing) SPDLD_REQUIRES(mutex_);
  void run(const ListingPtr& listing) SPDLD_EXCLUDES(mutex_);
  bool note(Listing& listing, ListingAsker::Doing doing) SPDLD_EXCLUDES(mutex_);
  // Takes it from those that may be joined, and its askers from it.
  std::vector<AskerPtr> take_askers(Listing& listing) SPDLD_REQUIRES(mutex_);
  // Gives its askers the outcome; returns those that are to be told, under no lock.
  std::vector<AskerPtr> answer(Listing& listing, const ListingOutcome& outcome)
      SPDLD_REQUIRES(mutex_);

  const Bounds bounds_;
  mutable Mutex mutex_;
  CondVar ended_;  // signalled when a thread ends
  std::map<std::string, ListingPtr> by_key_ SPDLD_GUARDED_BY(mutex_);  // those that may be joined
  std::map<uid_t, User> users_ SPDLD_GUARDED_BY(mutex_);
  std::size_t running_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::size_t threads_ SPDLD_GUARDED_BY(mutex_) = 0;  // with those that only tell their askers yet
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
};

// Waits on its own thread for what it asks for.
class ListingWaiter {
 public:
  explicit ListingWaiter(Listings& listings);

  ListingAsker& asker() { return asker_; }
  // Until the asker is told, or `progress` (may be empty), which is asked several times a second,
  // gives up: false.
  bool wait(const ListingProgress& progress);

 private:
  struct Told {
    Mutex mutex;
    CondVar changed;
    bool told SPDLD_GUARDED_BY(mutex) = false;
  };
  Listings& listings_;
  const std::shared_ptr<Told> told_;
  ListingAsker asker_;
};

}  // namespace spdld::pipeline

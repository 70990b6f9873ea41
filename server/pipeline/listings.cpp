// SPDX-License-Identifier: Apache-2.0
#include "pipeline/listings.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace spdld::pipeline {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{100};

Status stopped() { return {Code::kUnavailable, "the daemon is stopping"}; }

}  // namespace

struct ListingAsker::State {
  explicit State(std::function<void()> told) : tell(std::move(told)) {}

  // Hands the outcome over; false: the asker has withdrawn.
  bool take(const std::string& key, const ListingOutcome& outcome) {
    MutexLock lock(mutex);
    if (gone) return false;
    outcomes.insert_or_assign(key, outcome);
    doing.state = Doing::State::kNothing;
    return true;
  }
  void call_tell() {
    {
      MutexLock lock(mutex);
      if (gone) return;
      telling.push_back(std::this_thread::get_id());
    }
    tell();
    MutexLock lock(mutex);
    telling.erase(std::find(telling.begin(), telling.end(), std::this_thread::get_id()));
    told.notify_all();
  }
  void withdraw() {
    std::map<std::string, ListingOutcome> unused;  // goes after the lock
    MutexLock lock(mutex);
    gone = true;
    outcomes.swap(unused);
    const auto others_tell = [this]() SPDLD_REQUIRES(mutex) {
      const auto own = std::this_thread::get_id();
      return std::any_of(telling.begin(), telling.end(),
                         [own](std::thread::id thread) { return thread != own; });
    };
    while (others_tell()) told.wait(mutex);
  }
  bool is_gone() {
    MutexLock lock(mutex);
    return gone;
  }

  const std::function<void()> tell;
  Mutex mutex;
  CondVar told;  // signalled when a call of `tell` returns
  bool gone SPDLD_GUARDED_BY(mutex) = false;
  std::vector<std::thread::id> telling SPDLD_GUARDED_BY(mutex);  // threads within `tell`
  std::map<std::string, ListingOutcome> outcomes SPDLD_GUARDED_BY(mutex);
  Doing doing SPDLD_GUARDED_BY(mutex);
};

ListingAsker::ListingAsker(std::function<void()> tell)
    : state_(std::make_shared<State>(std::move(tell))) {}

ListingAsker::~ListingAsker() { state_->withdraw(); }

ListingAsker::Doing ListingAsker::doing() const {
  MutexLock lock(state_->mutex);
  return state_->doing;
}

struct Listings::Listing {
  const uid_t uid;
  const std::string key;
  Work work;
  std::vector<AskerPtr> askers = {};
  bool given_up = false;  // its work was told so, and nobody may join it
  ListingAsker::Doing doing = {.what = "other datasets of this user are listed first",
                               .state = ListingAsker::Doing::State::kWaits};
  Steady::time_point moved_at = {};  // when `doing` changed last

  void show() const {
    for (const AskerPtr& asker : askers) {
      MutexLock lock(asker->mutex);
      asker->doing = doing;
    }
  }
};

Listings::~Listings() {
  stop();
  MutexLock lock(mutex_);
  while (threads_ > 0) ended_.wait(mutex_);
}

bool Listings::is_wanted(const Listing& listing) {
  return !listing.given_up && std::any_of(listing.askers.begin(), listing.askers.end(),
                                          [](const AskerPtr& asker) { return !asker->is_gone(); });
}

std::optional<ListingOutcome> Listings::ask(uid_t uid, const std::string& key, Work work,
                                            const ListingAsker& asker) {
  MutexLock lock(mutex_);
  {
    MutexLock of_asker(asker.state_->mutex);
    const auto known = asker.state_->outcomes.find(key);
    if (known != asker.state_->outcomes.end()) return known->second;
  }
  if (stopping_) return tl::unexpected<Status>(stopped());
  ListingPtr& listing = by_key_[key];
  const bool joins = listing != nullptr && is_wanted(*listing);
  if (!joins) {
    if (listing != nullptr) listing->given_up = true;
    listing = std::make_shared<Listing>(Listing{.uid = uid, .key = key, .work = std::move(work)});
  }
  // An asker that asks again before the outcome is there is told once.
  if (std::find(listing->askers.begin(), listing->askers.end(), asker.state_) ==
      listing->askers.end())
    listing->askers.push_back(asker.state_);
  listing->show();
  if (!joins) {
    users_[uid].waiting.push_back(listing);
    begin_waiting();
  }
  return std::nullopt;
}

bool Listings::may_begin(const User& user) const {
  if (user.running.empty()) return true;
  if (running_ >= bounds_.threads ||
      user.running.size() >= static_cast<std::size_t>(bounds_.threads_per_user))
    return false;
  const Steady::time_point now = Steady::now();
  const auto comes_on = [&](const ListingPtr& listing) {
    return now - listing->moved_at < bounds_.stalled_after;
  };
  return std::count_if(user.running.begin(), user.running.end(), comes_on) < bounds_.per_user;
}

void Listings::begin_waiting() {
  for (auto user = users_.begin(); user != users_.end();) {
    User& of = user->second;
    while (!of.waiting.empty()) {
      const ListingPtr next = of.waiting.front();
      const bool wanted = is_wanted(*next);
      if (wanted && !(may_begin(of) && begin(next))) break;
      of.waiting.pop_front();
      if (wanted) {
        of.running.push_back(next);
        ++running_;
      } else {
        (void)take_askers(*next);
      }
    }
    user = of.waiting.empty() && of.running.empty() ? users_.erase(user) : std::next(user);
  }
}

bool Listings::begin(const ListingPtr& listing) {
  try {
    std::thread([this, listing] { run(listing); }).detach();
  } catch (const std::system_error&) {  // the machine has no thread left: the next tick tries again
    return false;
  }
  ++threads_;
  listing->moved_at = Steady::now();
  listing->doing = {.what = "the dataset is being opened",
                    .state = ListingAsker::Doing::State::kRuns};
  listing->show();
  return true;
}

void Listings::run(const ListingPtr& listing) {
  ::pthread_setname_np(::pthread_self(), "spdld-list");
  ListingOutcome outcome = error(Code::kInternal, "the listing failed");
  try {
    outcome = listing->work([this, &listing](std::uint64_t items, const std::string& what,
                                             const std::vector<std::string>& pools) {
      return note(*listing, {.items = items,
                             .what = what,
                             .pools = pools,
                             .state = ListingAsker::Doing::State::kRuns});
    });
  } catch (const std::exception& thrown) {  // no memory, say
    outcome = error(Code::kInternal, std::string("the listing failed: ") + thrown.what());
  }
  listing->work = nullptr;
  std::vector<AskerPtr> told;
  {
    MutexLock lock(mutex_);
    told = answer(*listing, outcome);
    User& user = users_.at(listing->uid);
    user.running.erase(std::find(user.running.begin(), user.running.end(), listing));
    --running_;
    begin_waiting();
  }
  // A check whether the pipeline is used must not find this thread.
  outcome = nullptr;
  for (const AskerPtr& asker : told) asker->call_tell();
  MutexLock lock(mutex_);
  --threads_;
  ended_.notify_all();
}

bool Listings::note(Listing& listing, ListingAsker::Doing doing) {
  MutexLock lock(mutex_);
  if (listing.doing != doing) {
    listing.doing = std::move(doing);
    listing.moved_at = Steady::now();
    listing.show();
  }
  if (!is_wanted(listing)) listing.given_up = true;
  return !listing.given_up;
}

std::vector<Listings::AskerPtr> Listings::take_askers(Listing& listing) {
  listing.given_up = true;
  const auto known = by_key_.find(listing.key);
  if (known != by_key_.end() && known->second.get() == &listing) by_key_.erase(known);
  return std::exchange(listing.askers, {});
}

std::vector<Listings::AskerPtr> Listings::answer(Listing& listing, const ListingOutcome& outcome) {
  std::vector<AskerPtr> askers = take_askers(listing);
  std::erase_if(askers, [&](const AskerPtr& asker) { return !asker->take(listing.key, outcome); });
  return askers;
}

void Listings::tick() {
  MutexLock lock(mutex_);
  if (!stopping_) begin_waiting();
}

void Listings::stop() {
  std::vector<AskerPtr> told;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    const auto end = [&](Listing& listing) SPDLD_REQUIRES(mutex_) {
      const std::vector<AskerPtr> askers = answer(listing, tl::unexpected(stopped()));
      told.insert(told.end(), askers.begin(), askers.end());
    };
    for (auto& [uid, user] : users_) {
      for (const ListingPtr& listing : user.waiting) end(*listing);
      user.waiting.clear();
      for (const ListingPtr& listing : user.running) end(*listing);
    }
  }
  for (const AskerPtr& asker : told) asker->call_tell();
}

bool Listings::idle_within(std::chrono::nanoseconds grace) {
  const Steady::time_point end = Steady::now() + grace;
  MutexLock lock(mutex_);
  while (threads_ > 0) {
    const auto left = end - Steady::now();
    if (left <= std::chrono::nanoseconds(0)) return false;
    ended_.wait_for(mutex_, left);
  }
  return true;
}

bool Listings::stalled_for(uid_t uid, std::chrono::nanoseconds time) const {
  const Steady::time_point now = Steady::now();
  MutexLock lock(mutex_);
  const auto user = users_.find(uid);
  if (user == users_.end() || user->second.running.empty()) return false;
  const std::vector<ListingPtr>& running = user->second.running;
  return std::all_of(running.begin(), running.end(),
                     [&](const ListingPtr& listing) { return now - listing->moved_at >= time; });
}

std::map<uid_t, int> Listings::users() const {
  MutexLock lock(mutex_);
  std::map<uid_t, int> users;
  for (const auto& [uid, user] : users_) {
    if (!user.running.empty()) users[uid] = static_cast<int>(user.running.size());
  }
  return users;
}

ListingWaiter::ListingWaiter(Listings& listings)
    : listings_(listings), told_(std::make_shared<Told>()), asker_([told = told_] {
        MutexLock lock(told->mutex);
        told->told = true;
        told->changed.notify_all();
      }) {}

bool ListingWaiter::wait(const ListingProgress& progress) {
  for (;;) {
    bool told = false;
    {
      MutexLock lock(told_->mutex);
      if (!told_->told) told_->changed.wait_for(told_->mutex, kPoll);
      told = std::exchange(told_->told, false);
    }
    const ListingAsker::Doing doing = asker_.doing();
    if (progress && !progress(doing.items, doing.what, doing.pools)) return false;
    if (told) return true;
    listings_.tick();
  }
}

}  // namespace spdld::pipeline

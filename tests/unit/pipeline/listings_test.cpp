// SPDX-License-Identifier: Apache-2.0
#include "pipeline/listings.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/pipeline/asking.h"

namespace spdld::pipeline {
namespace {

constexpr uid_t kUser = 1001;
constexpr uid_t kOther = 1002;

// A listing that hangs until it is let go, as one whose storage does not answer.
class Hung {
 public:
  ~Hung() { let_go(); }

  Listings::Work work() {
    return [state = state_](const ListingProgress& progress) -> ListingOutcome {
      ++state->begun;
      state->begun.notify_all();
      state->gate.wait(false);
      state->wanted = progress(1, "", {});
      return std::make_shared<const int>(7);
    };
  }
  void await(int count) {
    for (int begun = state_->begun; begun < count; begun = state_->begun) state_->begun.wait(begun);
  }
  void let_go() {
    state_->gate = true;
    state_->gate.notify_all();
  }
  int begun() const { return state_->begun; }
  // Of the one that came back last.
  bool was_wanted() const { return state_->wanted; }

 private:
  struct State {
    std::atomic<int> begun = 0;
    std::atomic<bool> gate = false;
    std::atomic<bool> wanted = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

int value_of(const std::optional<ListingOutcome>& outcome) {
  if (!outcome || !*outcome) return -1;
  return *std::static_pointer_cast<const int>(**outcome);
}

Listings::Work made_of(int value) {
  return [value](const ListingProgress&) -> ListingOutcome {
    return std::make_shared<const int>(value);
  };
}

ListingOutcome wait(Listings& listings, uid_t uid, const std::string& key,
                    const Listings::Work& work, const ListingProgress& progress = nullptr) {
  ListingWaiter waiter(listings);
  for (;;) {
    if (auto outcome = listings.ask(uid, key, work, waiter.asker())) return *outcome;
    if (!waiter.wait(progress)) return error(Code::kCancelled, "given up");
  }
}

// All come on, however slow this machine is.
constexpr Listings::Bounds kPatient{.per_user = 2, .stalled_after = std::chrono::hours(1)};
// None does.
constexpr Listings::Bounds kHasty{.per_user = 1,
                                  .threads_per_user = 3,
                                  .threads = 3,
                                  .stalled_after = std::chrono::nanoseconds(0)};

TEST(ListingsTest, TwoAskersOfOneListingShareIt) {
  Listings listings(kPatient);
  Hung hung;
  Asking first;
  Asking second;
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), first.asker()));
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), second.asker()));
  hung.await(1);
  EXPECT_FALSE(first.told() || second.told());
  hung.let_go();
  for (Asking* asking : {&first, &second}) {
    asking->await_told();
    EXPECT_EQ(value_of(listings.ask(kUser, "a", hung.work(), asking->asker())), 7);
  }
  EXPECT_EQ(hung.begun(), 1);
}

TEST(ListingsTest, AnAskerKeepsAllOutcomesThatItWasGiven) {
  Listings listings(kPatient);
  Asking asking;
  EXPECT_FALSE(listings.ask(kUser, "a", made_of(1), asking.asker()));
  asking.await_told();
  Hung hung;
  EXPECT_EQ(value_of(listings.ask(kUser, "a", hung.work(), asking.asker())), 1);
  EXPECT_FALSE(listings.ask(kUser, "b", made_of(2), asking.asker()));
  while (value_of(listings.ask(kUser, "b", hung.work(), asking.asker())) != 2) {
  }
  EXPECT_EQ(value_of(listings.ask(kUser, "a", hung.work(), asking.asker())), 1);
  EXPECT_EQ(hung.begun(), 0);
}

TEST(ListingsTest, AListingThatItsLastAskerLeavesIsGivenUp) {
  Listings listings(kPatient);
  Hung hung;
  auto first = std::make_unique<Asking>();
  auto second = std::make_unique<Asking>();
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), first->asker()));
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), second->asker()));
  hung.await(1);
  first.reset();
  second.reset();
  // One who comes now wants a listing that is not given up.
  EXPECT_EQ(value_of(wait(listings, kUser, "a", made_of(3))), 3);
  hung.let_go();
  EXPECT_TRUE(listings.idle_within(std::chrono::hours(1)));
  EXPECT_FALSE(hung.was_wanted());
}

TEST(ListingsTest, AListingGoesOnForTheAskerThatStays) {
  Listings listings(kPatient);
  Hung hung;
  auto leaves = std::make_unique<Asking>();
  Asking stays;
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), leaves->asker()));
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), stays.asker()));
  hung.await(1);
  leaves.reset();
  hung.let_go();
  stays.await_told();
  EXPECT_TRUE(hung.was_wanted());
  EXPECT_EQ(value_of(listings.ask(kUser, "a", hung.work(), stays.asker())), 7);
}

TEST(ListingsTest, AUserHasSoManyThatComeOnAndTheNextWaitsItsTurn) {
  Listings listings(kPatient);
  Hung hung;
  std::array<Asking, 3> asking;
  for (std::size_t i = 0; i < asking.size(); ++i)
    EXPECT_FALSE(listings.ask(kUser, std::to_string(i), hung.work(), asking[i].asker()));
  hung.await(2);
  listings.tick();
  EXPECT_EQ(listings.users(), (std::map<uid_t, int>{{kUser, 2}}));
  EXPECT_EQ(asking[2].asker().doing().what, "other datasets of this user are listed first");
  EXPECT_EQ(value_of(wait(listings, kOther, "b", made_of(4))), 4);
  hung.let_go();
  for (Asking& each : asking) each.await_told();
  EXPECT_EQ(hung.begun(), 3);
}

TEST(ListingsTest, OneThatDoesNotComeOnHoldsBackNoOtherOfItsUser) {
  Listings listings(kHasty);
  Hung hung;
  std::array<Asking, 2> asking;
  for (std::size_t i = 0; i < asking.size(); ++i)
    EXPECT_FALSE(listings.ask(kUser, std::to_string(i), hung.work(), asking[i].asker()));
  hung.await(2);
  EXPECT_EQ(value_of(wait(listings, kUser, "b", made_of(5))), 5);
}

TEST(ListingsTest, ThoseOfOneUserThatHangTakeNoPartOfAnothers) {
  Listings listings(kHasty);
  Hung hung;
  std::array<Asking, 5> asking;
  for (std::size_t i = 0; i < asking.size(); ++i)
    EXPECT_FALSE(listings.ask(kUser, std::to_string(i), hung.work(), asking[i].asker()));
  hung.await(3);
  listings.tick();
  EXPECT_EQ(listings.users(), (std::map<uid_t, int>{{kUser, 3}})) << "its bound";
  EXPECT_EQ(value_of(wait(listings, kOther, "b", made_of(6))), 6)
      << "all threads are taken, and each user has one";
}

TEST(ListingsTest, AGivenUpOneCountsUntilItsStorageAnswers) {
  Listings listings(kHasty);
  Hung hung;
  for (int i = 0; i < 3; ++i) {
    Asking gone;
    EXPECT_FALSE(listings.ask(kUser, std::to_string(i), hung.work(), gone.asker()));
  }
  hung.await(3);
  Asking next;
  EXPECT_FALSE(listings.ask(kUser, "b", made_of(8), next.asker()));
  listings.tick();
  EXPECT_EQ(listings.users(), (std::map<uid_t, int>{{kUser, 3}}));
  EXPECT_FALSE(next.told());
  hung.let_go();
  next.await_told();
}

TEST(ListingsTest, OneThatNobodyWaitsForAnyMoreDoesNotBegin) {
  Listings listings({.per_user = 1, .stalled_after = std::chrono::hours(1)});
  Hung hung;
  Hung late;
  Asking first;
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), first.asker()));
  {
    Asking gone;
    EXPECT_FALSE(listings.ask(kUser, "b", late.work(), gone.asker()));
  }
  hung.let_go();
  EXPECT_EQ(value_of(wait(listings, kUser, "c", made_of(9))), 9);
  EXPECT_EQ(late.begun(), 0);
}

TEST(ListingsTest, AWaiterLeavesWhenItsProgressGivesUpThoughTheListingHangs) {
  Listings listings(kPatient);
  Hung hung;
  const ListingOutcome outcome = wait(listings, kUser, "a", hung.work(),
                                      [&](std::uint64_t, const std::string& what, const auto&) {
                                        EXPECT_EQ(what, "the dataset is being opened");
                                        return false;
                                      });
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kCancelled);
}

TEST(ListingsTest, AWaiterIsShownHowFarAListingHasComeAtLeastOnce) {
  Listings listings(kPatient);
  std::uint64_t shown = 0;
  const auto outcome = wait(
      listings, kUser, "a",
      [](const ListingProgress& progress) -> ListingOutcome {
        progress(42, "listing", {"pool"});
        return std::make_shared<const int>(1);
      },
      [&](std::uint64_t items, const std::string&, const std::vector<std::string>& pools) {
        shown = items;
        EXPECT_EQ(pools.empty(), items == 0);
        return true;
      });
  EXPECT_TRUE(outcome);
  EXPECT_EQ(shown, 42U);
}

TEST(ListingsTest, AFailureIsToldToAllWhoAsked) {
  Listings listings(kPatient);
  const ListingOutcome failed =
      wait(listings, kUser, "a", [](const ListingProgress&) -> ListingOutcome {
        return error(Code::kNotFound, "no such directory");
      });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "no such directory");
  const ListingOutcome thrown =
      wait(listings, kUser, "b",
           [](const ListingProgress&) -> ListingOutcome { throw std::bad_alloc(); });
  ASSERT_FALSE(thrown);
  EXPECT_EQ(thrown.error().code(), Code::kInternal);
}

TEST(ListingsTest, AnAskerThatLeavesWithinItsCallIsNotWaitedFor) {
  Listings listings(kPatient);
  std::promise<void> gone;
  std::unique_ptr<ListingAsker> asker;
  asker = std::make_unique<ListingAsker>([&] {
    asker.reset();
    gone.set_value();
  });
  EXPECT_FALSE(listings.ask(kUser, "a", made_of(1), *asker));
  gone.get_future().wait();
}

TEST(ListingsTest, StopTellsAllAndLeavesWhatHangs) {
  Listings listings(kPatient);
  Hung hung;
  std::array<Asking, 3> asking;
  for (std::size_t i = 0; i < asking.size(); ++i)
    EXPECT_FALSE(listings.ask(kUser, std::to_string(i), hung.work(), asking[i].asker()));
  hung.await(2);
  listings.stop();
  for (std::size_t i = 0; i < asking.size(); ++i) {
    asking[i].await_told();
    const auto outcome = listings.ask(kUser, std::to_string(i), hung.work(), asking[i].asker());
    ASSERT_TRUE(outcome && !*outcome);
    EXPECT_EQ(outcome->error().code(), Code::kUnavailable);
  }
  EXPECT_FALSE(listings.idle_within(std::chrono::nanoseconds(1)));
  hung.let_go();
  EXPECT_TRUE(listings.idle_within(std::chrono::hours(1)));
  EXPECT_FALSE(wait(listings, kUser, "later", made_of(1)));
  EXPECT_EQ(hung.begun(), 2);
}

TEST(ListingsTest, AUserStallsWhoseListingsAllDoNotComeOn) {
  Listings listings(kPatient);
  Hung hung;
  EXPECT_FALSE(listings.stalled_for(kUser, std::chrono::nanoseconds(0))) << "it has none";
  Asking asking;
  EXPECT_FALSE(listings.ask(kUser, "a", hung.work(), asking.asker()));
  hung.await(1);
  EXPECT_TRUE(listings.stalled_for(kUser, std::chrono::nanoseconds(0)));
  EXPECT_FALSE(listings.stalled_for(kUser, std::chrono::hours(1)));
  EXPECT_FALSE(listings.stalled_for(kOther, std::chrono::nanoseconds(0)));
}

TEST(ListingsTest, TheirThreadsHaveAName) {
  Listings listings(kPatient);
  std::string name;
  EXPECT_TRUE(wait(listings, kUser, "a", [&](const ListingProgress&) -> ListingOutcome {
    std::array<char, 16> text{};
    ::pthread_getname_np(::pthread_self(), text.data(), text.size());
    name = text.data();
    return std::make_shared<const int>(1);
  }));
  EXPECT_EQ(name, "spdld-list");
}

}  // namespace
}  // namespace spdld::pipeline

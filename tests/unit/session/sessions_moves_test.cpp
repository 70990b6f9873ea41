// SPDX-License-Identifier: Apache-2.0
// An operator sends a job elsewhere, and its ranks take the same steps, whoever dies meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kThere = 30;  // the epoch that jobs are sent to

TEST_F(SessionsTest, ReadsUpToTheStepOfASeekWithARankThatWasAwayAtThatTime) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank away = attach({.job = "j", .shard = 0});
  sessions_->release(*away.connection, away.batch().lease);
  away.batch();
  hang_up(away);
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {3, 1}));
  Wish wish{.job = "j",
            .shard = 0,
            .reconnect = true,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1},
            .moves = 0};
  const Rank back = attach(wish);
  EXPECT_EQ(back.attached().step, 1U);
  // Nothing that the first one had begun is left out: at least the step that it was handed last.
  std::uint64_t step = 1;
  wire::BatchFrame batch = back.batch();
  for (; batch.epoch == 0; batch = back.batch()) {
    EXPECT_EQ(batch.step, step++);
    sessions_->release(*back.connection, batch.lease);
  }
  EXPECT_GT(step, 1U);
  EXPECT_EQ(batch.epoch, 3U);
  EXPECT_EQ(batch.step, 1U);
  hang_up(back);
  wish.moves = 1;
  EXPECT_EQ(attach(wish).attached().epoch, 0U) << "it says that it is there by its own wish";
}

// Two ranks of job 'j' that have read one batch each.
class MovedTest : public SessionsTest {
 protected:
  void SetUp() override {
    SessionsTest::SetUp();
    ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
    ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
    attach_both();
  }
  void attach_both() {
    first_ = attach({.job = "j", .shard = 0, .credits = 4});
    other_ = attach({.job = "j", .shard = 1, .credits = 4});
    sessions_->release(*first_.connection, first_.batch().lease);
    sessions_->release(*other_.connection, other_.batch().lease);
  }
  void send_elsewhere(job::StepAt to = {kThere, 1}) {
    const auto sought = sessions_->seek_job(self_, {.job = "j"}, to);
    ASSERT_TRUE(sought) << sought.error().message();
  }
  // All that the daemon sends it up to there is on its way, and its process has read none of it.
  wire::ResetFrame send_beyond(Rank& rank) {
    rank.passed = [&](const wire::BatchFrame& batch) {
      sessions_->release(*rank.connection, batch.lease);
    };
    return rank.next<wire::ResetFrame>(wire::FrameType::kReset);
  }
  // What a process starts from that took its state behind the first batch.
  static Wish from_before(std::uint32_t shard, bool reconnect = false) {
    return {.job = "j",
            .shard = shard,
            .reconnect = reconnect,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1},
            .moves = 0,
            .credits = 4};
  }
  // From the step at which who has taken this way went there.
  static Wish from_the_step(const std::vector<job::StepAt>& way) {
    Wish wish = from_before(0);
    const job::StepAt last = way.at(way.size() - 2);
    // Two steps an epoch, and an epoch's end is the next one's start.
    wish.cursor = {.epoch = last.epoch + last.step, .position = 0, .step = 0};
    if (last.step == 0) wish.cursor = {.epoch = last.epoch, .position = 4, .step = 1};
    return wish;
  }
  static Wish from_there(std::uint32_t shard) {
    Wish wish = from_before(shard);
    wish.cursor = {.epoch = kThere, .position = 4, .step = 1};
    wish.moves = 1;
    return wish;
  }
  // The steps up to the first one there, which it gives back.
  std::vector<job::StepAt> way_of(const Rank& rank, std::uint64_t there = kThere) {
    std::vector<job::StepAt> way;
    while (way.empty() || (way.back().epoch < there && way.size() < 1000)) {
      const wire::BatchFrame batch = rank.batch();
      way.push_back({batch.epoch, batch.step});
      sessions_->release(*rank.connection, batch.lease);
    }
    return way;
  }
  void restart() {
    stop();
    start();
    apply(yaml("p", "drop"));
    ASSERT_TRUE(sessions_->restore([](const std::string&) {}).ok());
  }

  Rank first_;
  Rank other_;
};

TEST_F(MovedTest, ReplacementRankFollowsSeekAheadOfItsPredecessor) {
  for (int step = 0; step < 6; ++step) sessions_->release(*other_.connection, other_.batch().lease);
  send_elsewhere();
  const auto resized = sessions_->resize_job(self_, {.job = "j"}, 1);
  ASSERT_FALSE(resized);
  EXPECT_THAT(resized.error().message(), HasSubstr("takes it elsewhere"));
  hang_up(first_);
  const std::vector<job::StepAt> rest = way_of(other_);
  const std::vector<job::StepAt> way = way_of(attach(from_before(0)));
  EXPECT_EQ(std::vector(way.begin() + 6, way.end()), rest);
}

TEST_F(MovedTest, ReplacementRankFollowsSeekMadeWhileItsPredecessorWasAway) {
  hang_up(first_);
  send_elsewhere();
  EXPECT_EQ(way_of(attach(from_before(0))), way_of(other_));
}

TEST_F(MovedTest, TakesWhoComesWithTheStateOfOneThatIsThereAlready) {
  send_elsewhere();
  hang_up(first_);
  EXPECT_EQ(attach(from_there(0)).attached().epoch, kThere);
}

TEST_F(MovedTest, TakesWhoComesFromTheStepOfTheSeekThere) {
  send_elsewhere();
  const std::vector<job::StepAt> way = way_of(other_);
  ASSERT_GT(way.size(), 1U);
  hang_up(first_);
  EXPECT_EQ(attach(from_the_step(way)).attached().epoch, kThere);
}

TEST_F(MovedTest, ReplacementRankFollowsSeekItsPredecessorMissed) {
  send_elsewhere();
  send_beyond(first_);
  hang_up(first_);
  EXPECT_EQ(way_of(attach(from_before(0))), way_of(other_));
}

TEST_F(MovedTest, TakesBackWhoHadNotReadThatItHadJumped) {
  send_elsewhere();
  send_beyond(first_);
  hang_up(first_);
  EXPECT_EQ(way_of(attach(from_before(0, true))), way_of(other_));
}

TEST_F(MovedTest, TakesBackWhoWasAwayAndIsTooOldToSayWhatItHasSeen) {
  hang_up(first_);
  send_elsewhere();
  Wish wish = from_before(0, true);
  wish.moves.reset();
  EXPECT_EQ(way_of(attach(wish)), way_of(other_));
}

TEST_F(MovedTest, AsksWhoSeeksBeforeItHasReadThatItHadJumpedToAttachAgain) {
  send_elsewhere();
  send_beyond(first_);
  sessions_->seek(*first_.connection, {.to = {.epoch = 7}, .serial = 1});
  const auto bye = first_.next<wire::ByeFrame>(wire::FrameType::kBye);
  EXPECT_EQ(bye.reason, wire::ByeReason::kShutdown);
  sessions_->detach(*first_.connection);  // from this connection alone
  hang_up(first_);
  Wish wish = from_before(0, true);
  wish.cursor = delivery::StreamPosition{.epoch = 7};
  EXPECT_EQ(attach(wish).attached().epoch, kThere) << "it does not pass by there";
}

TEST_F(MovedTest, TakesWhoSeeksBackBeforeItHasReadThatItHadJumpedThereOnceMore) {
  send_elsewhere();
  send_beyond(first_);
  sessions_->seek(*first_.connection, {.to = {}, .serial = 1});
  first_.next<wire::ByeFrame>(wire::FrameType::kBye);
  hang_up(first_);
  Wish wish = from_before(0, true);
  wish.cursor = delivery::StreamPosition{};
  std::vector<job::StepAt> way = way_of(other_);
  way.insert(way.begin(), {0, 0});
  EXPECT_EQ(way_of(attach(wish)), way);
}

TEST_F(MovedTest, SeeksForWhoIsKnownToHaveReadThatItHasJumped) {
  send_elsewhere();
  way_of(first_);
  first_.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*first_.connection, batch.lease);
  };
  sessions_->seek(*first_.connection, {.to = {.epoch = 7}, .serial = 1});
  while (first_.next<wire::ResetFrame>(wire::FrameType::kReset).seek != 1) {
  }
  EXPECT_EQ(first_.batch().epoch, 7U);
}

TEST_F(MovedTest, TakesWhoComesAfterARestartOfTheDaemonToWhereTheJobWasSent) {
  send_elsewhere();
  const std::vector<job::StepAt> way = way_of(other_);
  restart();
  EXPECT_EQ(way_of(attach(from_before(0))), way);
}

TEST_F(MovedTest, GoesAlongWithAllTheSeeksThatARankHasMissed) {
  send_elsewhere({10, 1});
  for (Rank* rank : {&first_, &other_}) {
    send_beyond(*rank);
    EXPECT_EQ(rank->batch().epoch, 10U);
  }
  send_elsewhere();
  restart();
  const Rank back = attach(from_before(0, true));
  const std::vector<job::StepAt> way = way_of(back);
  EXPECT_EQ(way.front(), (job::StepAt{0, 1}));
  EXPECT_THAT(way, ::testing::Contains(job::StepAt{10, 1}));
  EXPECT_EQ(way_of(attach(from_before(1))), way) << "another process, the same way";
}

TEST_F(MovedTest, TakesBothThereThoughOneDiesAgainBeforeItsFirstBatch) {
  send_elsewhere();
  const std::vector<job::StepAt> way = way_of(other_);
  hang_up(first_);
  Rank again = attach(from_before(0, true));
  send_beyond(again);
  hang_up(again);
  for (int life = 0; life < 2; ++life) {
    const Rank there = attach(from_the_step(way));
    EXPECT_EQ(there.attached().epoch, kThere) << "life " << life;
    hang_up(there);
  }
}

TEST_F(MovedTest, TakesAllThereThatStartAgainFromBeforeThoughOneHadReadThere) {
  send_elsewhere();
  const std::vector<job::StepAt> way = way_of(other_);
  hang_up(first_);
  hang_up(other_);
  EXPECT_EQ(way_of(attach(from_before(0))), way);
  EXPECT_EQ(way_of(attach(from_before(1))), way);
}

TEST_F(MovedTest, LeavesASeekToTheRunThatItWasSaidOf) {
  send_elsewhere();
  for (const Rank* rank : {&first_, &other_}) {
    sessions_->detach(*rank->connection);
    hang_up(*rank);
  }
  EXPECT_TRUE(sessions_->job(self_, {.job = "j"})->seeks.empty());
}

TEST_F(MovedTest, RefusesToResizeWhileARankIsYetToGoAlong) {
  send_elsewhere();
  way_of(other_);
  hang_up(first_);
  const auto refused = sessions_->resize_job(self_, {.job = "j"}, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("start again who is away"));
  way_of(attach(from_before(0)));
  EXPECT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 1));
}

TEST_F(MovedTest, RefusesMoreSeeksThanItKeeps) {
  hang_up(first_);
  for (std::size_t seek = 0; seek < Job::kMostMoves; ++seek) {
    send_elsewhere({10 * (seek + 1), 0});
    way_of(other_, 10 * (seek + 1));
  }
  const auto refused = sessions_->seek_job(self_, {.job = "j"}, {500, 0});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("was sought 16 times"));
  EXPECT_EQ(way_of(attach(from_before(0)), 160).back(), (job::StepAt{160, 0}));
}

TEST_F(MovedTest, RefusesARecordWhoseMovesMakeNoSense) {
  hang_up(first_);
  hang_up(other_);
  send_elsewhere();
  const job::JobKey key{.uid = self_.uid, .job = "j", .pipeline = "p"};
  const store::StoredJob good = **store_->job(key);
  const auto restored = [&](auto change) {
    store::StoredJob bad = good;
    change(bad.moves.front());
    EXPECT_TRUE(store_->put_jobs({bad}).ok());
    stop();
    start();
    apply(yaml("p", "drop"));
    std::string warning;
    EXPECT_TRUE(sessions_->restore([&](std::string text) { warning = std::move(text); }).ok());
    return warning;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const auto refused = HasSubstr("its record makes no sense");
  EXPECT_THAT(restored([](store::StoredMove& move) { move.from.epoch = kHuge; }), refused);
  EXPECT_THAT(restored([](store::StoredMove& move) { move.to.epoch = kHuge; }), refused);
  EXPECT_THAT(restored([](store::StoredMove& move) { move.after = move.number; }), refused);
  EXPECT_THAT(restored([](store::StoredMove& move) { move.number = 0; }), refused);
  EXPECT_EQ(restored([](store::StoredMove&) {}), "");
}

TEST_F(MovedTest, CountsOnAfterARestartOfTheDaemon) {
  send_elsewhere({10, 1});
  restart();
  Rank back = attach(from_before(0, true));
  EXPECT_EQ(way_of(back, 10).back(), (job::StepAt{10, 1}));
  send_elsewhere();
  EXPECT_EQ(send_beyond(back).moves, 2U);
}

TEST_F(MovedTest, GoesByASavedStateOnceAllHaveGoneAlong) {
  send_elsewhere();
  const std::size_t until = way_of(first_).size();
  way_of(other_);
  hang_up(first_);
  const Rank back = attach(from_before(0));
  for (std::size_t step = 0; step < until + 4; ++step) {
    const wire::BatchFrame batch = back.batch();
    EXPECT_LT(batch.epoch, kThere);
    sessions_->release(*back.connection, batch.lease);
  }
}

TEST_F(MovedTest, CountsOnFromWhatAStateOfAnotherRunHasSeen) {
  hang_up(first_);
  Wish wish = from_before(0);
  wish.moves = 5;
  first_ = attach(wish);
  EXPECT_EQ(first_.attached().step, 1U);
  send_elsewhere();
  EXPECT_EQ(send_beyond(first_).moves, 6U);
  hang_up(first_);
  EXPECT_EQ(way_of(attach(wish)), way_of(other_));
}

TEST_F(MovedTest, BeginsAnewWhereTheJobWasSent) {
  hang_up(first_);
  hang_up(other_);
  send_elsewhere();
  EXPECT_EQ(attach({.job = "j", .shard = 0}).attached().epoch, kThere);
  EXPECT_EQ(attach(from_before(1)).attached().epoch, 0U) << "of the run before";
}

}  // namespace
}  // namespace spdld::session

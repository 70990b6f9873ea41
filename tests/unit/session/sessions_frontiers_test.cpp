// SPDX-License-Identifier: Apache-2.0
// Changes of a job begin behind every step that any of its ranks was given, whatever became of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

// Job 'j' of two shards on ninety files in batches of two: 22 steps an epoch.
class FrontiersTest : public SessionsTest {
 protected:
  void SetUp() override {
    SessionsTest::SetUp();
    declare_on_more();
    ASSERT_TRUE(resize(2));
  }
  Result<job::JobView> resize(std::uint32_t num_shards) {
    return sessions_->resize_job(self_, {.job = "j"}, num_shards);
  }
  static Wish wish(std::uint32_t shard) { return {.pipeline = "q", .job = "j", .shard = shard}; }
  // Attached again by the process that had read up to there.
  static Wish back(std::uint32_t shard, std::uint64_t step) {
    Wish wish = FrontiersTest::wish(shard);
    wish.reconnect = true;
    wish.cursor = delivery::StreamPosition{.epoch = 0, .position = step * 4, .step = step};
    return wish;
  }
  void read(const Rank& rank, int steps) {
    for (int step = 0; step < steps; ++step)
      sessions_->release(*rank.connection, rank.batch().lease);
  }
  store::StoredJob on_disk() {
    return store_->job({.uid = self_.uid, .job = "j", .pipeline = "q"})->value();
  }
  // A daemon that was killed when `record` was what it had written, and another one.
  void kill_and_start(const store::StoredJob& record) {
    sessions_->suspend();
    stop();
    start();
    ASSERT_TRUE(store_->put_jobs({record}).ok());
    std::string text = yaml("q", "drop");
    apply(text.replace(text.find("/data"), 5, "/more"));
    ASSERT_TRUE(sessions_->restore([](const std::string& why) { ADD_FAILURE() << why; }).ok());
  }
  void restart() {
    sessions_->suspend();
    kill_and_start(on_disk());
  }
  // Who was expected back and has not come is waited for no more.
  void let_them_be_given_up() {
    clock_.advance(std::chrono::seconds(61));
    sessions_->keep();
  }
};

TEST_F(FrontiersTest, CountsAShardThatLeftAndWasNotHeardOfSinceARestart) {
  const Rank slow = attach(wish(0));
  const Rank fast = attach(wish(1));
  read(slow, 2);
  read(fast, 15);
  hang_up(fast);
  restart();
  const Rank again = attach(back(0, 2));
  read(again, 1);
  let_them_be_given_up();
  const auto resized = resize(1);
  ASSERT_TRUE(resized) << resized.error().message();
  EXPECT_GE(resized->dealt_from, (job::StepAt{0, 15}));
  EXPECT_LE(resized->dealt_from, (job::StepAt{1, 0})) << "it is known exactly where it was";
}

TEST_F(FrontiersTest, CountsAShardThatReadOnAfterTheRecordAndNeverComesBack) {
  const Rank slow = attach(wish(0));
  const Rank fast = attach(wish(1));
  read(slow, 2);
  read(fast, 1);  // what is kept for it is on the disk before its first batch
  const store::StoredJob record = on_disk();
  read(fast, 14);
  kill_and_start(record);
  const Rank again = attach(back(0, 2));
  read(again, 1);
  EXPECT_FALSE(resize(1)) << "shard 1 is expected";
  let_them_be_given_up();
  const auto resized = resize(1);
  ASSERT_TRUE(resized) << resized.error().message();
  EXPECT_GE(resized->dealt_from, (job::StepAt{0, 15}));
}

TEST_F(FrontiersTest, KnowsExactlyWhereRanksAreThatHaveAllComeBack) {
  {
    const Rank slow = attach(wish(0));
    const Rank fast = attach(wish(1));
    read(slow, 2);
    read(fast, 1);  // what is kept for it is on the disk before its first batch
    const store::StoredJob record = on_disk();
    read(fast, 7);
    kill_and_start(record);
  }
  const Rank slow = attach(back(0, 2));
  const Rank fast = attach(back(1, 8));
  read(slow, 1);
  read(fast, 1);
  const auto resized = resize(1);
  ASSERT_TRUE(resized) << resized.error().message();
  EXPECT_GE(resized->dealt_from, (job::StepAt{0, 9}));
  EXPECT_LE(resized->dealt_from, (job::StepAt{1, 0})) << "no lead is added to where they are";
}

TEST_F(FrontiersTest, GoesBackWithRanksThatAllStartAgainFromAnOlderState) {
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const Rank rank = attach(wish(shard));
    read(rank, 18);
    hang_up(rank);
  }
  Wish older = back(0, 3);
  older.reconnect = false;
  const Rank first = attach(older);
  read(first, 1);
  older.shard = 1;
  const Rank second = attach(older);
  read(second, 1);
  EXPECT_LT(sessions_->skip_steps(self_, {.job = "j"}, 1)->dealt_from, (job::StepAt{0, 18}));
}

TEST_F(FrontiersTest, CountsRanksThatHaveNotStartedAgainFromAState) {
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const Rank rank = attach(wish(shard));
    read(rank, 18);
    hang_up(rank);
  }
  Wish older = back(0, 3);
  older.reconnect = false;
  const Rank first = attach(older);
  read(first, 1);
  EXPECT_GE(resize(1)->dealt_from, (job::StepAt{0, 18})) << "shard 1 may go on where it was";
}

TEST_F(FrontiersTest, IsNotBeforeTheLastResizeAfterARestart) {
  Rank stays = attach(wish(0));
  const Rank leaves = attach(wish(1));
  read(stays, 2);
  read(leaves, 12);
  const auto resized = resize(1);
  ASSERT_TRUE(resized) << resized.error().message();
  hang_up(leaves);
  restart();
  stays = attach(back(0, 2));
  read(stays, 1);
  let_them_be_given_up();
  const auto skipped = sessions_->skip_steps(self_, {.job = "j"}, 1);
  ASSERT_TRUE(skipped) << skipped.error().message();
  EXPECT_GE(skipped->dealt_from, resized->dealt_from);
}

TEST_F(FrontiersTest, BeginsAnewWithANewRun) {
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const Rank rank = attach(wish(shard));
    read(rank, 18);
    hang_up(rank);
  }
  const Rank fresh = attach(wish(0));
  read(fresh, 1);
  EXPECT_LT(resize(3)->dealt_from, (job::StepAt{0, 18}));
}

TEST_F(FrontiersTest, IsWhereTheJobWasSentByASeek) {
  const Rank slow = attach(wish(0));
  const Rank fast = attach(wish(1));
  read(slow, 1);
  read(fast, 15);
  hang_up(fast);
  hang_up(slow);
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {0, 4}));
  EXPECT_EQ(resize(1)->dealt_from, (job::StepAt{0, 4}));
}

TEST_F(FrontiersTest, IsOnDiskBeforeAConsumersFirstBatch) {
  const Rank first = attach(wish(0));
  first.attached();
  Wish ahead = back(1, 12);
  ahead.reconnect = false;
  const Rank second = attach(ahead);
  second.batch();
  std::optional<job::StepAt> kept;
  for (const job::MemberRecord& of : on_disk().members) {
    if (of.member == job::Member{.shard = 1, .replica = 0}) kept = of.reserved;
  }
  ASSERT_TRUE(kept);
  EXPECT_GT(*kept, (job::StepAt{0, 13}));
}

// Shard 0 has read two steps, and the other one all that was its own before a resize took it away.
class LastRankTest : public FrontiersTest {
 protected:
  void SetUp() override {
    FrontiersTest::SetUp();
    Rank first = attach(wish(0));
    const Rank second = attach(wish(1));
    read(first, 2);
    read(second, 4);
    const auto resized = resize(1);
    ASSERT_TRUE(resized) << resized.error().message();
    from_ = resized->dealt_from;
    ASSERT_EQ(from_.epoch, 0U);
    for (std::uint64_t step = 4; step < from_.step; ++step) read(second, 1);
    hang_up(second);
    hang_up(first);
  }
  static Wish from_state(std::uint32_t shard, std::uint32_t num_shards, std::uint64_t step) {
    Wish wish = back(shard, step);
    wish.reconnect = false;
    wish.num_shards = num_shards;
    return wish;
  }
  static job::StepAt begin_of(const Rank& rank) {
    const wire::AttachedFrame told = rank.attached();
    return {told.epoch, told.step};
  }

  job::StepAt from_;  // where the resize begins
};

TEST_F(LastRankTest, ReadsNoRowsOfAShardThatHasReadThemWhenItComesBackWithItsState) {
  for (const bool restarted : {false, true}) {
    if (restarted) restart();
    const Rank rank = attach(from_state(0, 1, 2));
    EXPECT_EQ(rank.batch().next_position, 12U) << "of two shards";
    hang_up(rank);
  }
  const Rank rank = attach(from_state(0, 1, 2));
  read(rank, static_cast<int>(from_.step) - 2);
  EXPECT_EQ(rank.batch().next_position, from_.step * 4 + 2) << "of one";
}

TEST_F(LastRankTest, ReadsAllRowsBehindAnOlderState) {
  const Rank rank = attach(from_state(0, 1, 1));
  EXPECT_EQ(rank.batch().next_position, 6U) << "of one shard: the other one's rows come again";
}

TEST_F(LastRankTest, TakesOverARankThatStoppedWhereItDid) {
  // Both have read two steps when they die, before the one that is to go has read on.
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {1, 0}));
  ASSERT_TRUE(resize(2));
  const auto in_epoch_1 = [](std::uint32_t shard, std::uint32_t num_shards) {
    Wish wish = from_state(shard, num_shards, 2);
    wish.cursor = delivery::StreamPosition{.epoch = 1, .position = 8, .step = 2};
    return wish;
  };
  {
    const Rank first = attach(wish(0));
    Wish slow = wish(1);
    slow.credits = wire::kMinCredits;
    const Rank second = attach(slow);
    read(first, 2);
    read(second, 2);
    // More is there for it than it has been sent.
    while (sessions_->sessions(self_).back().ready == 0) std::this_thread::yield();
    ASSERT_TRUE(resize(1));
    hang_up(first);
    hang_up(second);
  }
  const Rank rank = attach(in_epoch_1(0, 1));
  EXPECT_EQ(rank.batch().next_position, 10U) << "of one shard";
  EXPECT_THAT(attach(in_epoch_1(1, 2)).refusal(), HasSubstr("has num_shards 1"));
}

TEST_F(LastRankTest, LeavesToAShardThatGoesWhatThatHasYetToRead) {
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {1, 0}));
  ASSERT_TRUE(resize(2));
  {
    const Rank first = attach(wish(0));
    Wish slow = wish(1);
    slow.credits = wire::kMinCredits;
    const Rank second = attach(slow);
    read(second, 1);
    read(first, 8);
    first.batch();  // the resize begins behind it
    ASSERT_TRUE(resize(1));
    hang_up(first);
    hang_up(second);
  }
  const auto at = [](std::uint32_t shard, std::uint32_t num_shards, std::uint64_t step) {
    Wish wish = from_state(shard, num_shards, step);
    wish.cursor = delivery::StreamPosition{.epoch = 1, .position = step * 4, .step = step};
    return wish;
  };
  const Rank first = attach(at(0, 1, 8));
  EXPECT_EQ(first.batch().next_position, 36U) << "of two shards";
  EXPECT_EQ(begin_of(attach(at(1, 2, 1))), (job::StepAt{1, 1}));
}

TEST_F(LastRankTest, LeavesItToAShardThatGoesWhenTheOthersBeginAtTheLedgersPlace) {
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {1, 0}));
  ASSERT_TRUE(resize(2));
  {
    const Rank first = attach(wish(0));
    Wish slow = wish(1);
    slow.credits = wire::kMinCredits;
    const Rank second = attach(slow);
    read(second, 3);
    read(first, 1);
    ASSERT_TRUE(resize(1));
    hang_up(first);
    hang_up(second);
  }
  Wish from_ledger = FrontiersTest::wish(0);
  from_ledger.from_ledger = true;
  const Rank first = attach(from_ledger);
  EXPECT_EQ(first.batch().next_position, 8U) << "of two shards";
  Wish wish = from_state(1, 2, 3);
  wish.cursor = delivery::StreamPosition{.epoch = 1, .position = 12, .step = 3};
  EXPECT_EQ(begin_of(attach(wish)), (job::StepAt{1, 3}));
}

TEST_F(LastRankTest, LeavesToAShardThatGoesWhatThatHasYetToReadBeforeASeek) {
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {1, 0}));
  ASSERT_TRUE(resize(2));
  {
    Rank first = attach(wish(0));
    Wish slow = wish(1);
    slow.credits = wire::kMinCredits;
    const Rank second = attach(slow);
    read(second, 1);
    read(first, 8);
    ASSERT_TRUE(resize(1));
    ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {3, 0}));
    first.passed = [&](const wire::BatchFrame& batch) {
      sessions_->release(*first.connection, batch.lease);
    };
    while (first.next<wire::ResetFrame>(wire::FrameType::kReset).moves < 2) {
    }
    read(first, 2);
    hang_up(first);
    hang_up(second);
  }
  Wish sought = from_state(0, 1, 2);
  sought.cursor = delivery::StreamPosition{.epoch = 3, .position = 4, .step = 2};
  sought.moves = 2;
  const Rank first = attach(sought);
  EXPECT_EQ(begin_of(first), (job::StepAt{3, 2}));
  Wish before = from_state(1, 2, 1);
  before.cursor = delivery::StreamPosition{.epoch = 1, .position = 4, .step = 1};
  before.moves = 1;
  const Rank second = attach(before);
  EXPECT_EQ(begin_of(second), (job::StepAt{1, 1}));
  const auto refused = resize(2);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("where the last seek takes it elsewhere"));
  hang_up(second);
  EXPECT_TRUE(resize(2)) << "who has left a shard that goes holds up no other change";
}

TEST_F(LastRankTest, DealsNoRowsAnewThatAShardWhichStaysHasRead) {
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {1, 0}));
  ASSERT_TRUE(resize(3));
  {
    const Rank first = attach(wish(0));
    const Rank second = attach(wish(1));
    Wish slow = wish(2);
    slow.credits = wire::kMinCredits;
    const Rank third = attach(slow);
    read(first, 2);
    read(second, 7);
    read(third, 2);
    while (sessions_->sessions(self_).back().ready == 0) std::this_thread::yield();
    ASSERT_TRUE(resize(2));
    for (const Rank* rank : {&first, &second, &third}) hang_up(*rank);
  }
  Wish wish = from_state(0, 2, 2);
  wish.cursor = delivery::StreamPosition{.epoch = 1, .position = 12, .step = 2};
  const Rank rank = attach(wish);
  EXPECT_EQ(rank.batch().next_position, 18U) << "of three shards";
}

TEST_F(LastRankTest, LetsARankOfAShardThatGoesReadItToItsEnd) {
  ASSERT_TRUE(resize(2));
  const Rank first = attach(from_state(0, 2, 2));
  first.attached();
  const Rank second = attach(wish(1));
  second.attached();
  read(second, 1);
  ASSERT_TRUE(resize(1));
  hang_up(second);
  const std::uint64_t at = from_.step + 1;
  Rank other = attach(from_state(1, 2, at));
  EXPECT_EQ(begin_of(other), (job::StepAt{0, at}));
  other.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*other.connection, batch.lease);
  };
  EXPECT_EQ(other.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kResized);
  EXPECT_THAT(attach(from_state(1, 3, 2)).refusal(), HasSubstr("has num_shards 1"));
}

TEST_F(LastRankTest, IsAwaitedByAFreshRankOfAShardThatComesIntoTheJob) {
  ASSERT_TRUE(resize(2));
  const Rank fresh = attach(wish(1));
  const auto told = fresh.next<wire::ProgressFrame>(wire::FrameType::kProgress);
  sessions_->heartbeat();
  EXPECT_EQ(fresh.next<wire::ProgressFrame>(wire::FrameType::kProgress).text_bytes, told.text_bytes)
      << "its client hears that the daemon lives";
  const Rank first = attach(from_state(0, 2, 2));
  EXPECT_EQ(begin_of(first), (job::StepAt{0, 2}));
  EXPECT_EQ(begin_of(fresh), from_);
}

TEST_F(LastRankTest, BeginsANewRunForAFreshRankThatWaitsWhenItComesAfreshToo) {
  ASSERT_TRUE(resize(2));
  const Rank fresh = attach(wish(1));
  fresh.next<wire::ProgressFrame>(wire::FrameType::kProgress);
  const Rank first = attach(wish(0));
  EXPECT_EQ(begin_of(first), job::StepAt());
  EXPECT_EQ(begin_of(fresh), job::StepAt());
}

TEST_F(LastRankTest, IsAwaitedUntilTheJobIsDeletedOrHasNoSuchShardAnyMore) {
  ASSERT_TRUE(resize(2));
  const Rank fresh = attach(wish(1));
  fresh.next<wire::ProgressFrame>(wire::FrameType::kProgress);
  const Rank gone = attach(wish(1));
  gone.next<wire::ProgressFrame>(wire::FrameType::kProgress);
  hang_up(gone);
  ASSERT_TRUE(resize(1));
  EXPECT_THAT(fresh.refusal(), HasSubstr("there is no shard 1"));
  ASSERT_TRUE(resize(2));
  const Rank other = attach(wish(1));
  other.next<wire::ProgressFrame>(wire::FrameType::kProgress);
  ASSERT_TRUE(sessions_->delete_job(self_, {.job = "j"}));
  EXPECT_EQ(other.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kJobDeleted);
}

TEST_F(FrontiersTest, AShardThatIsResizedAwayAndBackBeginsWhereItWasDealtIn) {
  const Rank stays = attach(wish(0));
  const Rank leaves = attach(wish(1));
  read(stays, 2);
  read(leaves, 8);
  const auto away = resize(1);
  ASSERT_TRUE(away) << away.error().message();
  hang_up(leaves);
  const auto resized = resize(2);
  ASSERT_TRUE(resized) << resized.error().message();
  EXPECT_EQ(resized->dealt_from, away->dealt_from) << "nobody has read on meanwhile";
  for (const bool restarted : {false, true}) {
    if (restarted) restart();
    const Rank again = attach(wish(1));
    const wire::AttachedFrame told = again.attached();
    EXPECT_EQ((job::StepAt{told.epoch, told.step}), resized->dealt_from);
    hang_up(again);
  }
}

}  // namespace
}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
// An operator seeks, skips and resizes a job: each turn of its run has one meaning, whichever of
// its ranks, or the daemon, dies meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

// Job 'j' of two shards on ninety files in batches of two: 22 steps an epoch.
class EditsTest : public SessionsTest {
 protected:
  void SetUp() override {
    SessionsTest::SetUp();
    declare_on_more();
    ASSERT_TRUE(resize(2));
  }
  Result<job::JobView> resize(std::uint32_t num_shards) {
    return sessions_->operate().resize_job(self_, {.job = "j"}, num_shards);
  }
  Result<job::JobView> seek(job::StepAt to) {
    return sessions_->operate().seek_job(self_, {.job = "j"}, to);
  }
  Result<job::JobView> leave_out(std::uint64_t steps) {
    return sessions_->operate().skip_steps(self_, {.job = "j"}, steps);
  }
  static Wish shard(std::uint32_t number) {
    return {.pipeline = "q", .job = "j", .shard = number, .credits = wire::kMinCredits};
  }
  store::StoredJob on_disk() {
    return store_->job({.uid = self_.uid, .job = "j", .pipeline = "q"})->value();
  }
  // Of the change that was made last.
  job::Turn turn_of_edit() { return on_disk().schedule.edits.back().turn; }
  // Its process has read up to there, and is handed that turn next.
  void read_up_to(Loop& loop, job::Turn turn) {
    while (loop.wish.in_run.turn < turn && !HasFailure()) step(loop);
  }
  std::vector<job::StepAt> places(Loop& loop, std::uint64_t batches) {
    std::vector<job::StepAt> places;
    for (std::uint64_t i = 0; i < batches && !HasFailure(); ++i) places.push_back(at(step(loop)));
    return places;
  }
  // A daemon that was killed when `record` was what it had written, and another one.
  void kill_and_start(const store::StoredJob& record) {
    sessions_->suspend();
    stop();
    start();
    ASSERT_TRUE(store_->put_jobs({record}).ok());
    apply_more();
    ASSERT_TRUE(
        sessions_->records().restore([](const std::string& why) { ADD_FAILURE() << why; }).ok());
  }
  void restart() {
    sessions_->keeper().keep();
    sessions_->suspend();
    kill_and_start(on_disk());
  }
  // Ranks that were expected back and have not come are waited for no more.
  void give_up_waiting() {
    clock_.advance(std::chrono::seconds(61));
    sessions_->keeper().keep();
  }
  bool ends_as_resized(Loop& loop) {
    loop.rank.passed = [&](const wire::BatchFrame& batch) {
      sessions_->release(*loop.rank.connection, batch.lease);
    };
    return loop.rank.next<wire::ByeFrame>(wire::FrameType::kBye).reason ==
           wire::ByeReason::kResized;
  }
};

TEST_F(EditsTest, ReplacementRankReadsTheStepsOfItsPredecessor) {
  enum class Death { kBeforeTheSeek, kAfterIt, kBehindIt, kOfTheLinkAlone, kOfTheDaemon };
  std::uint64_t epoch = 10;
  for (const Death death : {Death::kBeforeTheSeek, Death::kAfterIt, Death::kBehindIt,
                            Death::kOfTheLinkAlone, Death::kOfTheDaemon}) {
    Loop first = open(shard(0));
    Loop other = open(shard(1));
    read(first, 1);
    read(other, 4);
    const Wish saved = first.wish;
    if (death == Death::kBeforeTheSeek) kill(first);
    ASSERT_TRUE(seek({++epoch, 1}));
    const job::Turn turn = turn_of_edit();
    if (death == Death::kBehindIt) read_up_to(first, turn + 3);
    if (death == Death::kOfTheDaemon) {
      restart();
      other = reconnect(other);
    } else if (death != Death::kBeforeTheSeek) {
      kill(first);
    }
    first = death == Death::kOfTheLinkAlone || death == Death::kOfTheDaemon ? reconnect(saved)
                                                                            : open(saved);
    EXPECT_EQ(first.wish.in_run.turn, saved.in_run.turn);
    read_up_to(other, 4);
    read_up_to(first, 4);
    const std::vector<job::StepAt> way = places(other, turn);
    EXPECT_EQ(places(first, turn), way) << static_cast<int>(death);
    EXPECT_THAT(way, ::testing::Contains(job::StepAt{epoch, 1}));
    for (const Loop* loop : {&first, &other}) {
      sessions_->detach(*loop->rank.connection);
      kill(*loop);
    }
  }
}

// Whatever its state is: of a turn before the change, of that very turn, or of one behind.
TEST_F(EditsTest, RankThatStartsFromItsStateGoesThroughEachChangeOnce) {
  ASSERT_TRUE(resize(1));
  Loop loop = open(shard(0));
  const std::vector<std::function<bool()>> changes = {
      [&] { return leave_out(2).has_value(); }, [&] { return seek({3, 5}).has_value(); },
      [&] { return resize(2).has_value(); },    [&] { return leave_out(1000).has_value(); },
      [&] { return resize(1).has_value(); },
  };
  for (std::size_t change = 0; change < changes.size(); ++change) {
    read(loop, 1);
    std::vector<Wish> saved{loop.wish};
    ASSERT_TRUE(changes[change]());
    const job::Turn turn = turn_of_edit();
    std::vector<wire::BatchFrame> batches;
    while (loop.wish.in_run.turn < turn + 3 && !HasFailure()) {
      batches.push_back(step(loop));
      saved.push_back(loop.wish);
    }
    saved.pop_back();
    kill(loop);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      Loop again = open(saved[i]);
      const wire::BatchFrame batch = step(again);
      EXPECT_EQ(at(batch), at(batches[i])) << "change " << change << ", state " << i;
      EXPECT_EQ(batch.next_position, batches[i].next_position);
      EXPECT_EQ(batch.turn, batches[i].turn);
      if (i + 1 == saved.size()) {
        loop = std::move(again);
      } else {
        kill(again);
      }
    }
  }
}

TEST_F(EditsTest, BeginBehindARankThatLeft) {
  Loop slow = open(shard(0));
  Loop fast = open(shard(1));
  read(slow, 2);
  read(fast, 15);
  kill(fast);
  restart();
  slow = reconnect(slow);
  read(slow, 1);
  ASSERT_TRUE(resize(1));
  EXPECT_GE(turn_of_edit(), 15U);
  EXPECT_LE(turn_of_edit(), 15U + 8) << "it is known exactly where it was";
}

TEST_F(EditsTest, BeginBehindARankThatReadOnAfterTheRecordAndNeverCameBack) {
  Loop slow = open(shard(0));
  Loop fast = open(shard(1));
  read(slow, 2);
  read(fast, 1);  // what is kept for it is on the disk before its first batch
  const store::StoredJob record = on_disk();
  read(fast, 14);
  kill_and_start(record);
  slow = reconnect(slow);
  read(slow, 1);
  const auto refused = resize(1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("shard 1 was read when the daemon stopped"));
  give_up_waiting();
  ASSERT_TRUE(resize(1));
  EXPECT_GE(turn_of_edit(), 15U);
}

TEST_F(EditsTest, BeginWhereRanksAreThatHaveAllComeBack) {
  Loop slow = open(shard(0));
  Loop fast = open(shard(1));
  read(slow, 2);
  read(fast, 1);
  const store::StoredJob record = on_disk();
  read(fast, 7);
  kill_and_start(record);
  slow = reconnect(slow);
  fast = reconnect(fast);
  read(fast, 1);
  ASSERT_TRUE(leave_out(1));
  EXPECT_GE(turn_of_edit(), 9U);
  EXPECT_LE(turn_of_edit(), 9U + 8) << "what is reserved does not count any more";
}

TEST_F(EditsTest, MakeABranchWhereAllRanksHaveGoneBackToOlderStates) {
  Loop first = open(shard(0));
  Loop other = open(shard(1));
  read(first, 3);
  read(other, 3);
  const Wish first_saved = first.wish;
  const Wish other_saved = other.wish;
  read(first, 15);
  read(other, 15);
  kill(first);
  kill(other);
  const Wish abandoned = other.wish;
  first = open(first_saved);
  other = open(other_saved);
  read(first, 1);
  read(other, 1);
  ASSERT_TRUE(leave_out(1));
  EXPECT_LT(turn_of_edit(), 18U);
  EXPECT_EQ(first.wish.in_run.branch, 0U);
  read_up_to(first, turn_of_edit() + 1);
  EXPECT_EQ(first.wish.in_run.branch, 1U);
  kill(other);
  const Loop lost = open(abandoned);
  EXPECT_EQ(lost.wish.in_run.turn, 0U) << "that is a state of another run, a place alone";
  EXPECT_EQ(lost.wish.cursor->step, 18U);
  kill(lost);
  other = open(other_saved);
  EXPECT_EQ(other.wish.in_run.turn, 3U) << "that was saved before the branches parted";
}

TEST_F(EditsTest, CountARankThatHasNotGoneBackWithTheOthers) {
  Loop first = open(shard(0));
  Loop other = open(shard(1));
  read(first, 3);
  const Wish saved = first.wish;
  read(first, 15);
  read(other, 18);
  kill(first);
  kill(other);
  first = open(saved);
  ASSERT_TRUE(leave_out(1));
  EXPECT_GE(turn_of_edit(), 18U) << "shard 1 may go on where it was";
}

TEST_F(EditsTest, SeekSendsRanksThatAreAwayThereByTheLedger) {
  Loop first = open(shard(0));
  Loop other = open(shard(1));
  read(first, 5);
  read(other, 5);
  kill(first);
  kill(other);
  ASSERT_TRUE(seek({2, 4}));
  for (const std::uint32_t number : {0U, 1U}) {
    Wish wish = shard(number);
    wish.from_ledger = true;
    Loop again = open(wish);
    EXPECT_EQ(at(step(again)), (job::StepAt{2, 4}));
  }
}

TEST_F(EditsTest, OfTheTurnOfASeekSayThatTheyBeginWhereItLeads) {
  Loop first = open(shard(0));
  Loop other = open(shard(1));
  read(first, 1);
  read(other, 1);
  ASSERT_TRUE(seek({2, 4}));
  const job::Turn sought = turn_of_edit();
  const auto skipped = leave_out(3);
  ASSERT_TRUE(skipped);
  const job::Turn turn = turn_of_edit();
  // Batches may have been begun there by then.
  EXPECT_EQ(skipped->dealt_from, (job::StepAt{2, 4 + turn - sought}));
  const job::StepAt behind{2, 7 + turn - sought};
  read_up_to(first, turn);
  EXPECT_EQ(at(step(first)), behind);
  read_up_to(other, turn);
  EXPECT_EQ(at(step(other)), behind);
}

TEST_F(EditsTest, SeekIsWhereAFreshRunBegins) {
  Loop first = open(shard(0));
  read(first, 1);
  const Wish saved = first.wish;
  kill(first);
  ASSERT_TRUE(seek({30, 1}));
  Loop fresh = open(shard(0));
  EXPECT_EQ(at(step(fresh)), (job::StepAt{30, 1}));
  Wish wish = saved;
  wish.shard = 1;
  Loop of_old_run = open(wish);
  EXPECT_EQ(of_old_run.wish.in_run.turn, 0U);
  EXPECT_EQ(of_old_run.wish.cursor->epoch, 0U);
}

TEST_F(EditsTest, RefuseMoreThanAreKnownUntilAllRanksHaveComeThroughTheOldest) {
  Loop slow = open(shard(0));
  Loop fast = open(shard(1));
  read(slow, 1);
  read(fast, 1);
  const Wish saved = fast.wish;
  read(fast, 5);
  for (std::size_t edit = 0; edit < job::Schedule::kMostEdits; ++edit) ASSERT_TRUE(leave_out(0));
  const job::Turn turn = turn_of_edit();
  const auto refused = leave_out(0);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("64 changes of the job are known"));
  read_up_to(slow, turn + 1);
  read_up_to(fast, turn + 1);
  EXPECT_TRUE(leave_out(0));
  kill(fast);
  fast = open(saved);
  EXPECT_EQ(fast.wish.in_run.turn, on_disk().schedule.oldest)
      << "its state is a place alone by now";
  EXPECT_EQ(fast.wish.cursor->step, 1U);
}

TEST_F(EditsTest, OfADamagedRecordKeepTheJobFromGoingOn) {
  store::StoredJob bad = on_disk();
  bad.schedule.edits = {{.turn = 0, .change = job::Edit::Swap{17}}};
  stop();
  start();
  apply_more();
  ASSERT_TRUE(store_->put_jobs({bad}).ok());
  std::string warning;
  ASSERT_TRUE(
      sessions_->records().restore([&](std::string text) { warning = std::move(text); }).ok());
  EXPECT_THAT(warning, HasSubstr("job 'j' on pipeline 'q' cannot go on"));
}

// A resize takes shard 1 away: what it has yet to read is its own.
class LeavingShardTest : public EditsTest {
 protected:
  void SetUp() override {
    EditsTest::SetUp();
    stays_ = open(shard(0));
    goes_ = open(shard(1));
    read(stays_, 2);
    read(goes_, 2);
    ASSERT_TRUE(resize(1));
    turn_ = turn_of_edit();
    ASSERT_LT(turn_, 20U);
  }

  Loop stays_;
  Loop goes_;
  job::Turn turn_ = 0;
};

TEST_F(LeavingShardTest, IsToldToLeaveBehindItsLastStep) {
  read_up_to(goes_, turn_);
  EXPECT_TRUE(ends_as_resized(goes_));
}

TEST_F(LeavingShardTest, IsReadToItsEndByAnotherProcessWithItsState) {
  kill(goes_);
  Wish wish = goes_.wish;
  wish.num_shards = 2;
  Loop again = open(wish);
  read_up_to(again, turn_);
  EXPECT_TRUE(ends_as_resized(again));
  EXPECT_THAT(attach({.pipeline = "q", .job = "j", .shard = 1}).refusal(),
              HasSubstr("there is no shard 1"));
}

TEST_F(LeavingShardTest, HasReadItsRowsWhenTheLastRankComesBackWithItsState) {
  read_up_to(goes_, turn_);
  ASSERT_TRUE(ends_as_resized(goes_));
  kill(goes_);
  kill(stays_);
  Wish wish = stays_.wish;
  wish.num_shards = 1;
  for (const bool restarted : {false, true}) {
    if (restarted) restart();
    const Loop killed_again = open(wish);
    EXPECT_EQ(killed_again.wish.in_run.turn, 2U);
    kill(killed_again);
  }
  Loop again = open(wish);
  for (job::Turn turn = 2; turn < turn_; ++turn)
    EXPECT_EQ(step(again).next_position, (turn + 1) * 4) << "of two shards";
  EXPECT_EQ(step(again).next_position, turn_ * 4 + 2) << "of one";
  kill(again);
  Loop older = open(wish);
  EXPECT_EQ(step(older).next_position, 10U) << "of one: it has read on since, alone";
}

// A resize brings shard 1 into a job that shard 0 has read alone.
class EnteringShardTest : public EditsTest {
 protected:
  void SetUp() override {
    EditsTest::SetUp();
    ASSERT_TRUE(resize(1));
    there_ = open(shard(0));
    read(there_, 3);
    ASSERT_TRUE(resize(2));
    turn_ = turn_of_edit();
  }
  // A rank of the shard, which is told why it waits.
  Loop come() {
    Loop loop{.rank = attach(shard(1)), .wish = shard(1)};
    loop.rank.next<wire::ProgressFrame>(wire::FrameType::kProgress);
    return loop;
  }
  void expect_to_begin_where_the_other_is(Loop& loop) {
    EXPECT_EQ(loop.wish.in_run.turn, turn_);
    EXPECT_EQ(*loop.wish.cursor, there_at_turn_) << "a cursor says where it is before the resize";
  }
  // Its process tells with one of these batches that its loop has come there.
  void bring_there_to_turn() {
    read_up_to(there_, turn_);
    there_at_turn_ = *there_.wish.cursor;
    there_next_ = step(there_);
  }

  Loop there_;
  job::Turn turn_ = 0;
  delivery::StreamPosition there_at_turn_;
  wire::BatchFrame there_next_{};
};

TEST_F(EnteringShardTest, WaitsForARankThatWasThereToComeToItsTurn) {
  Loop enters = come();
  sessions_->heartbeat();
  std::string why;
  enters.rank.next<wire::ProgressFrame>(wire::FrameType::kProgress, &why);
  EXPECT_THAT(why, HasSubstr("shard 1 comes into the job where it was resized"));
  bring_there_to_turn();
  take_up(enters);
  expect_to_begin_where_the_other_is(enters);
  const wire::BatchFrame own = step(enters);
  EXPECT_EQ(at(own), at(there_next_));
  EXPECT_EQ(own.next_position, there_next_.next_position);
}

TEST_F(EnteringShardTest, BeginsThereHoweverLateItComes) {
  bring_there_to_turn();
  read(there_, 5);
  for (const bool restarted : {false, true}) {
    if (restarted) {
      restart();
      there_ = reconnect(there_);
    }
    Loop enters = open(shard(1));
    expect_to_begin_where_the_other_is(enters);
    kill(enters);
  }
}

TEST_F(EnteringShardTest, WaitsWhileNobodyIsThereAndForTheStateOfOneThatWas) {
  kill(there_);
  Loop enters = come();
  there_ = open(Wish(there_.wish));
  bring_there_to_turn();
  take_up(enters);
  expect_to_begin_where_the_other_is(enters);
}

TEST_F(EnteringShardTest, BeginsAtTheStartWhereTheOthersBeginAfresh) {
  kill(there_);
  Loop enters = come();
  there_ = open(shard(0));
  take_up(enters);
  EXPECT_EQ(at(step(enters)), job::StepAt());
  EXPECT_EQ(at(step(there_)), job::StepAt());
}

TEST_F(EnteringShardTest, FollowsASeekThatTheOthersLoopsSayBefore) {
  Loop enters = come();
  go_to_epoch(there_, 7);
  bring_there_to_turn();
  take_up(enters);
  EXPECT_EQ(enters.wish.cursor->epoch, 7U);
  EXPECT_EQ(at(step(enters)), at(there_next_));
}

TEST_F(EnteringShardTest, WaitsUntilTheJobHasNoSuchShardAnyMoreOrIsDeleted) {
  const Loop gone = come();
  kill(gone);
  const Loop first = come();
  ASSERT_TRUE(resize(1));
  EXPECT_THAT(first.rank.refusal(), HasSubstr("there is no shard 1"));
  ASSERT_TRUE(resize(2));
  const Loop second = come();
  ASSERT_TRUE(sessions_->operate().delete_job(self_, {.job = "j"}));
  EXPECT_EQ(second.rank.next<wire::ByeFrame>(wire::FrameType::kBye).reason,
            wire::ByeReason::kJobDeleted);
}

TEST_F(EnteringShardTest, BeginsAtTheLastResizeIfItWasThereBefore) {
  bring_there_to_turn();
  Loop enters = open(shard(1));
  read(enters, 2);
  kill(enters);
  ASSERT_TRUE(resize(1));
  ASSERT_TRUE(resize(2));
  turn_ = turn_of_edit();
  Loop again = come();
  bring_there_to_turn();
  take_up(again);
  expect_to_begin_where_the_other_is(again);
}

}  // namespace
}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#include "session/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "session/records.h"
#include "tests/unit/session/session_layer.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

// What an attach asks for.
struct Wish {
  std::string pipeline = "p";
  std::string job = {};
  std::string pipeline_yaml = {};
  std::map<std::string, std::string> env = {};
  std::optional<std::uint32_t> shard = {};
  std::optional<std::uint32_t> num_shards = {};
  std::uint32_t incarnation = 0;
  bool reconnect = false;
  std::optional<delivery::StreamPosition> cursor = {};
  std::optional<std::uint32_t> moves = {};
  std::optional<std::uint64_t> batch_size = {};
  bool from_ledger = false;
  std::map<std::string, std::string> vars = {};
  std::string pipeline_file = {};
  std::uint32_t replicas = 1;
  std::optional<std::uint32_t> credits = {};
};

// The session layer over a dataset of ten small files, in batches of two.
class SessionsTest : public SessionLayer {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    start();
    apply(yaml("p", "drop"));
  }
  std::string yaml(const std::string& name, const std::string& last) const {
    return "pipeline: " + name + "\nsource:\n  files: {root: " + files_.path("data") +
           ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n" +
           "batch: {size: 2, max_bytes: 4KiB, last: " + last + "}\n";
  }
  void apply(const std::string& text) {
    ApplyRequest request;
    request.yaml = text;
    request.file = "-";
    const auto applied = service_->apply(self_, request, nullptr);
    ASSERT_TRUE(applied) << applied.error().message();
  }
  Rank attach(const Wish& wish) {
    Rank consumer = connect();
    delivery::AttachRequest request;
    request.pipeline = wish.pipeline;
    request.job = wish.job;
    request.pipeline_yaml = wish.pipeline_yaml;
    request.env = wish.env;
    request.shard = wish.shard;
    request.num_shards = wish.num_shards;
    request.incarnation = wish.incarnation;
    request.reconnect = wish.reconnect;
    request.moves = wish.moves;
    request.batch_size = wish.batch_size;
    request.vars = wish.vars;
    request.pipeline_file = wish.pipeline_file;
    request.replicas = wish.replicas;
    request.credits = wish.credits;
    if (wish.replicas > 1) request.replica = "0";
    if (wish.from_ledger) request.start = wire::StartMode::kLedger;
    if (wish.cursor) {
      request.start = wire::StartMode::kCursor;
      request.cursor = *wish.cursor;
    }
    sessions_->attach(consumer.connection, std::move(request));
    return consumer;
  }
  // Job 'j' on pipeline 'q' of ninety files.
  void declare_on_more() {
    for (int i = 10; i < 100; ++i) files_.file("more/" + std::to_string(i) + ".bin", "bytes");
    std::string text = yaml("q", "drop");
    text.replace(text.find("/data"), 5, "/more");
    apply(text);
    JobRequest request = declared(0);
    request.pipeline = "q";
    ASSERT_TRUE(sessions_->create_job(self_, request));
  }
  static JobRequest declared(std::uint64_t max_epochs) {
    JobRequest request;
    request.job = "j";
    request.pipeline = "p";
    request.max_epochs = max_epochs;
    return request;
  }
};

TEST_F(SessionsTest, RefusesACursorThatNoJobCanHave) {
  const auto from = [&](delivery::StreamPosition cursor) {
    return attach({.job = "j", .cursor = cursor}).refusal();
  };
  EXPECT_THAT(from({.epoch = 0, .position = 11, .step = 3}), HasSubstr("behind the last of 10"));
  EXPECT_THAT(from({.epoch = 0, .position = 0, .step = kHuge}), HasSubstr("no place in a job"));
  EXPECT_THAT(from({.epoch = kHuge, .position = 0, .step = 0}), HasSubstr("no place in a job"));
}

TEST_F(SessionsTest, EndsAConsumerThatSeeksWhereNoJobCanBe) {
  for (const delivery::StreamPosition to :
       {delivery::StreamPosition{.epoch = 0, .position = 11, .step = 1},
        delivery::StreamPosition{.epoch = 0, .position = 0, .step = kHuge},
        delivery::StreamPosition{.epoch = kHuge, .position = 0, .step = 0}}) {
    const Rank consumer = attach({});
    consumer.batch();
    sessions_->seek(*consumer.connection, {.to = to, .serial = 1});
    EXPECT_THAT(consumer.refusal(), HasSubstr("seek"));
    EXPECT_TRUE(consumer.connection->ending());
  }
}

TEST_F(SessionsTest, AnswersASeekThatComesRightAfterTheAttach) {
  for (int i = 0; i < 50; ++i) {
    const Rank consumer = attach({});
    consumer.attached();
    sessions_->seek(*consumer.connection,
                    {.to = {.epoch = 3, .position = 0, .step = 0}, .serial = 1});
    EXPECT_EQ(consumer.next<wire::ResetFrame>(wire::FrameType::kReset).seek, 1U);
    hang_up(consumer);
  }
}

TEST_F(SessionsTest, GoesOnWithinAnEpochFromAPositionOfAnotherBatchSize) {
  const Rank consumer =
      attach({.cursor = delivery::StreamPosition{.epoch = 1, .position = 5, .step = 7}});
  const wire::AttachedFrame told = consumer.attached();
  EXPECT_EQ(told.position, 5U);
  EXPECT_EQ(told.step, 7U);
  const wire::BatchFrame batch = consumer.batch();
  EXPECT_EQ(batch.step, 7U);
  EXPECT_EQ(batch.next_position, 7U);
}

TEST_F(SessionsTest, TellsWhoStartsBehindTheLastEpochThatTheJobHasEnded) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(2)));
  const Rank consumer = attach(
      {.job = "j", .cursor = delivery::StreamPosition{.epoch = 2, .position = 0, .step = 0}});
  const auto end = consumer.next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd);
  EXPECT_EQ(end.epoch, 1U);
  EXPECT_EQ(end.last, 1U);
}

TEST_F(SessionsTest, LeavesNoJobBehindWhoseFirstRankWasRefused) {
  EXPECT_THAT(attach({.job = "j", .shard = 3}).refusal(), HasSubstr("there is no shard 3"));
  EXPECT_TRUE(sessions_->jobs(self_).empty());
  EXPECT_EQ(attach({.job = "j", .shard = 3, .num_shards = 4}).attached().num_shards, 4);
}

TEST_F(SessionsTest, RefusesMoreShardsThanItCouldList) {
  apply(yaml("padded", "pad"));
  EXPECT_THAT(attach({.pipeline = "padded", .job = "j", .shard = 0, .num_shards = 65537}).refusal(),
              HasSubstr("num_shards 65537 is not between"));
}

TEST_F(SessionsTest, TellsTheStatisticsOfAJobWhoseNameIsNotUtf8) {
  const Rank consumer = attach({.job = "\xff\xfe"});
  consumer.attached();
  sessions_->query(*consumer.connection, {.kind = wire::QueryKind::kStats, .serial = 1});
  std::string text;
  consumer.next<wire::BlobFrame>(wire::FrameType::kBlob, &text);
  EXPECT_THAT(text, HasSubstr("\"stages\""));
}

TEST_F(SessionsTest, ServesAPipelineThatCannotBeKept) {
  const Rank consumer = attach({.pipeline = "own",
                                .pipeline_yaml = yaml("own", "drop"),

                                .env = {{"NAME", "\xff"}}});
  EXPECT_EQ(consumer.attached().items, 10U);
}

TEST_F(SessionsTest, KeepsTheRunningRanksWhenARestartOfThemIsRefused) {
  const Rank running = attach({.job = "j", .shard = 0, .num_shards = 2});
  running.attached();
  // Twenty shards of two make no step of ten items.
  EXPECT_THAT(attach({.job = "j", .shard = 0, .num_shards = 20, .incarnation = 1}).refusal(),
              HasSubstr("make no single step"));
  EXPECT_FALSE(running.connection->ending());
  EXPECT_EQ(attach({.job = "j", .shard = 1, .num_shards = 2}).attached().shard, 1);
}

TEST_F(SessionsTest, EvictsTheRanksOfAnOlderIncarnationForANewerOne) {
  const Rank older = attach({.job = "j", .shard = 0, .num_shards = 2});
  older.attached();
  EXPECT_EQ(
      attach({.job = "j", .shard = 0, .num_shards = 1, .incarnation = 1}).attached().num_shards, 1);
  EXPECT_EQ(older.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kEvicted);
  EXPECT_THAT(attach({.job = "j", .shard = 1, .num_shards = 2}).refusal(),
              HasSubstr("has been evicted"));
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksWhenAResizedJobIsSoughtBack) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  Rank second = attach({.job = "j", .shard = 1});
  second.attached();
  second.batch();
  second.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*second.connection, batch.lease);
  };
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 1}));
  const auto reset = second.next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.position, 2U);
  EXPECT_EQ(reset.num_shards, 2);
  EXPECT_FALSE(second.connection->ending());
  const Rank first = attach({.job = "j", .shard = 0});
  const wire::BatchFrame batch = first.batch();
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksThatComeWithACursorFromBeforeAResize) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const Rank second =
      attach({.job = "j",
              .shard = 1,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1}});
  const wire::BatchFrame batch = second.batch();
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
  EXPECT_FALSE(second.connection->ending());
}

TEST_F(SessionsTest, TakesBackARankThatWasAwayWhenTheJobWasResized) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  Wish wish{.job = "j",
            .shard = 0,
            .num_shards = 1,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 6, .step = 3}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("has num_shards 2"));
  wish.reconnect = true;
  const Rank back = attach(wish);
  EXPECT_EQ(back.attached().num_shards, 2);
  // The step before the resize is still its own alone.
  EXPECT_EQ(back.batch().next_position, 8U);
}

TEST_F(SessionsTest, HandsOutItsLastStepsToAShardThatWasAwayWhenItWasLeftOut) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const Rank stays = attach({.job = "j", .shard = 0});
  const Rank away = attach({.job = "j", .shard = 1});
  sessions_->release(*away.connection, away.batch().lease);
  away.batch();
  hang_up(away);
  const auto resized = sessions_->resize_job(self_, "j", "", 1);
  ASSERT_TRUE(resized);
  Wish wish{.job = "j",
            .shard = 1,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("there is no shard 1"));
  wish.reconnect = true;
  Rank back = attach(wish);
  StepAt last;
  back.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*back.connection, batch.lease);
    last = {batch.epoch, batch.step};
  };
  EXPECT_EQ(back.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kResized);
  const StepAt behind{last.epoch, last.step + 1};
  const StepAt from = resized->dealt_from;
  EXPECT_TRUE(from == behind || from == (StepAt{last.epoch + 1, 0}));
}

TEST_F(SessionsTest, TakesAResizedJobUpAfterARestart) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  stop();
  start();
  apply(yaml("p", "drop"));
  ASSERT_TRUE(sessions_->restore([](const std::string&) {}).ok());
  EXPECT_EQ(attach({.job = "j", .shard = 1}).attached().num_shards, 2);
}

TEST_F(SessionsTest, RefusesTheRanksOfAJobWhoseDatasetHasShrunkBelowItUntilItIsDeleted) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  stop();
  for (int i = 4; i < 10; ++i) files_.remove("data/" + std::to_string(i) + ".bin");
  start();
  apply(yaml("p", "drop"));
  std::string warning;
  ASSERT_TRUE(sessions_->restore([&](std::string text) { warning = std::move(text); }).ok());
  EXPECT_THAT(warning, HasSubstr("job 'j' on pipeline 'p' cannot go on"));
  EXPECT_TRUE(sessions_->jobs(self_).empty());
  EXPECT_THAT(attach({.job = "j"}).refusal(), HasSubstr("bring the dataset back"));
  ASSERT_TRUE(sessions_->delete_job(self_, "j", ""));
  EXPECT_EQ(attach({.job = "j"}).attached().items, 4U);
}

TEST_F(SessionsTest, RefusesToSeekAJobToWhereItCannotBe) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(2)));
  for (const StepAt to : {StepAt{0, 6}, StepAt{2, 0}, StepAt{kHuge, 0}, StepAt{0, kHuge}})
    EXPECT_FALSE(sessions_->seek_job(self_, "j", "", to)) << to.epoch << ", " << to.step;
}

TEST_F(SessionsTest, SurvivesAFreshRankBesideOneWhoseCursorIsFarBehindTheEpochsEnd) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank far =
      attach({.job = "j",
              .shard = 0,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 6, .step = 1000}});
  EXPECT_EQ(far.batch().step, 1000U);
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const Rank fresh = attach({.job = "j", .shard = 1});
  EXPECT_EQ(fresh.attached().num_shards, 2);
  // Its own batches never come to step 1000: the new deal begins with an epoch to come.
  EXPECT_GE(fresh.batch().epoch, 1U);
}

TEST_F(SessionsTest, ResizesAJobFromWhereItsRanksCursorsHaveIt) {
  declare_on_more();
  const Rank first =
      attach({.pipeline = "q",
              .job = "j",
              .shard = 0,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 1, .step = 2}});
  EXPECT_EQ(first.batch().next_position, 3U);
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const auto reset = first.next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.epoch, 0U);
  // Another rank begins where no rank has been yet: rows in odd places, as the first cursor had it.
  const Rank second = attach({.pipeline = "q", .job = "j", .shard = 1});
  const wire::AttachedFrame told = second.attached();
  EXPECT_EQ(told.position, 1 + (told.step - 2) * 2);
}

TEST_F(SessionsTest, MovesARankThatWasAwayWhenTheJobWasSought) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank away = attach({.job = "j", .shard = 0});
  away.batch();
  hang_up(away);
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {3, 1}));
  const Rank back =
      attach({.job = "j",
              .shard = 0,
              .reconnect = true,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1}});
  const wire::AttachedFrame told = back.attached();
  EXPECT_EQ(told.epoch, 3U);
  EXPECT_EQ(told.step, 1U);
}

TEST_F(SessionsTest, TakesWhoComesInThePlaceOfOneThatWasAwayToWhereTheJobWasSent) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank away = attach({.job = "j", .shard = 0});
  sessions_->release(*away.connection, away.batch().lease);
  away.batch();
  hang_up(away);
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {30, 1}));
  const Rank stays = attach({.job = "j", .shard = 0, .reconnect = true});
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const Rank gone = attach({.job = "j", .shard = 1});
  gone.batch();
  hang_up(gone);
  const auto sought = sessions_->seek_job(self_, "j", "", {60, 1});
  ASSERT_TRUE(sought) << sought.error().message();
  const Rank instead =
      attach({.job = "j",
              .shard = 1,
              .cursor = delivery::StreamPosition{.epoch = 31, .position = 0, .step = 0}});
  wire::BatchFrame batch = instead.batch();
  while (batch.epoch < 60) {
    ASSERT_LT(batch.epoch, 50U);
    sessions_->release(*instead.connection, batch.lease);
    batch = instead.batch();
  }
}

TEST_F(SessionsTest, ReadsUpToTheStepOfASeekWithARankThatWasAwayAtThatTime) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank away = attach({.job = "j", .shard = 0});
  sessions_->release(*away.connection, away.batch().lease);
  away.batch();
  hang_up(away);
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {3, 1}));
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

TEST_F(SessionsTest, GoesAlongWithTheLastOfTheSeeksThatARankHasMissed) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank away = attach({.job = "j", .shard = 0});
  away.batch();
  hang_up(away);
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {3, 1}));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {7, 2}));
  const Rank back =
      attach({.job = "j",
              .shard = 0,
              .reconnect = true,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1},
              .moves = 0});
  EXPECT_EQ(back.attached().epoch, 7U);
}

TEST_F(SessionsTest, GoesOnWithAJobsHistoryInAnotherWorldAndWithAnotherBatchSize) {
  const auto with_limit = [&](const std::string& kib) {
    std::string text = yaml("p", "drop");
    text.replace(text.find("4KiB"), 4, kib);
    return text;
  };
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const Rank first = attach(wish);
  first.batch();
  ApplyRequest request;
  request.yaml = with_limit("8KiB");
  request.file = "-";
  const auto swapped = service_->swap(
      self_, request, {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = {40, 1}}}, nullptr);
  ASSERT_TRUE(swapped) << swapped.error().message();
  hang_up(first);
  apply(with_limit("16KiB"));
  wish.num_shards = 1;
  const auto goes_on_with = [&](delivery::StreamPosition cursor, std::uint64_t batch_size) {
    wish.cursor = cursor;
    wish.batch_size = batch_size;
    const Rank rank = attach(wish);
    const std::uint32_t version = rank.attached().pipeline_version;
    EXPECT_EQ(rank.batch().next_position, cursor.position + batch_size);
    hang_up(rank);
    return version;
  };
  EXPECT_EQ(goes_on_with({.epoch = 40, .position = 4, .step = 1}, 3), 2U);
  EXPECT_EQ(goes_on_with({.epoch = 39, .position = 2, .step = 1}, 3), 1U);
  EXPECT_EQ(goes_on_with({.epoch = 50, .position = 0, .step = 0}, 2), 2U);
  wish.cursor.reset();
  EXPECT_EQ(attach(wish).attached().pipeline_version, 3U) << "a fresh run is another one";
}

TEST_F(SessionsTest, LeavesShardsToOtherNodesThatNobodyHasComeFor) {
  const Rank rank = attach({.job = "j", .shard = 1, .num_shards = 2});
  sessions_->release(*rank.connection, rank.batch().lease);
  const auto ledger = [&] {
    sessions_->tick();
    std::this_thread::yield();
    return sessions_->job(self_, "j", "")->ledger;
  };
  while (ledger().kept_unix_ms == 0) {
  }
  EXPECT_EQ(ledger().at, (StepAt{0, 0})) << "shard 0 may be on its way";
  clock_.advance(std::chrono::seconds(61));
  while (ledger().at != StepAt{0, 1}) {
  }
}

TEST_F(SessionsTest, BeginsWithTheOthersThoughTheLedgerHasMovedOnSinceTheyBegan) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const auto ledger = [&] {
    sessions_->tick();
    std::this_thread::yield();
    return sessions_->job(self_, "j", "")->ledger;
  };
  {
    const Rank first = attach(wish);
    wish.shard = 1;
    const Rank second = attach(wish);
    sessions_->release(*first.connection, first.batch().lease);
    sessions_->release(*second.connection, second.batch().lease);
    hang_up(first);
    hang_up(second);
  }
  wish.from_ledger = true;
  wish.shard = 0;
  const Rank again = attach(wish);
  EXPECT_EQ(again.attached().step, 1U);
  clock_.advance(std::chrono::seconds(61));
  // Nobody has come for the other shard: the ledger goes on without it.
  while (ledger().at == StepAt{0, 1}) sessions_->release(*again.connection, again.batch().lease);
  wish.shard = 1;
  EXPECT_EQ(attach(wish).attached().step, 1U);
}

TEST_F(SessionsTest, BeginsANewRunByTheLedgerThoughADaemonWasKilledUnderTheLastOne) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const Rank first = attach(wish);
  sessions_->release(*first.connection, first.batch().lease);
  first.batch();
  wish.shard = 1;
  const Rank second = attach(wish);
  sessions_->release(*second.connection, second.batch().lease);
  second.batch();
  sessions_->tick();
  sessions_->suspend();
  stop();
  start();
  apply(yaml("p", "drop"));
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 1U);
  wish.shard = 0;
  EXPECT_EQ(attach(wish).attached().step, 1U);
  EXPECT_TRUE(sessions_->seek_job(self_, "j", "", {0, 0})) << "nobody is yet to come back";
}

TEST_F(SessionsTest, RefusesToGoOnByALedgerOfAnotherOrder) {
  const Wish wish{.job = "j", .shard = 0, .num_shards = 1, .from_ledger = true};
  const Rank rank = attach({.job = "j", .shard = 0, .num_shards = 1});
  sessions_->release(*rank.connection, rank.batch().lease);
  rank.batch();
  stop();
  start();
  apply(yaml("p", "drop"));
  const Rank again = attach(wish);
  EXPECT_EQ(again.attached().step, 1U);
  again.batch();
  stop();
  files_.file("data/another.bin", "bytes");
  start();
  apply(yaml("p", "drop"));
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("cannot go on where it was"));
}

TEST_F(SessionsTest, GoesBackBeforeWhereTheLedgerHadItInAnotherWorld) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 1};
  const Rank alone = attach(wish);
  for (int step = 0; step < 4; ++step) sessions_->release(*alone.connection, alone.batch().lease);
  hang_up(alone);
  wish.from_ledger = true;
  wish.num_shards = 2;  // of which each has two steps: less than were read
  const Rank first = attach(wish);
  ASSERT_EQ(first.attached().step, 4U);
  sessions_->seek(*first.connection, {.to = {}, .serial = 1});
  first.next<wire::ResetFrame>(wire::FrameType::kReset);
  stop();
  start();
  apply(yaml("p", "drop"));
  wish.from_ledger = false;
  wish.reconnect = true;
  wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1};
  const Rank again = attach(wish);
  const auto next = [&] {
    const wire::BatchFrame batch = again.batch();
    sessions_->release(*again.connection, batch.lease);
    return StepAt{batch.epoch, batch.step};
  };
  EXPECT_EQ(next(), (StepAt{0, 1}));
  EXPECT_EQ(next(), (StepAt{1, 0}));
}

TEST_F(SessionsTest, LetsRanksOfARunningJobComeThoughTheTextHasOtherVariablesNow) {
  std::string text = yaml("p", "drop");
  text.replace(text.find("4KiB"), 4, "\"${limit}\"");
  apply(text + "vars: {limit: 4KiB}\n");
  Wish wish{.job = "j", .shard = 0, .num_shards = 2, .vars = {{"limit", "8KiB"}}};
  const Rank first = attach(wish);
  first.batch();
  text.replace(text.find("${limit}"), 8, "${most}");
  apply(text + "vars: {most: 4KiB}\n");
  wish.shard = 1;
  EXPECT_EQ(attach(wish).attached().shard, 1);
  stop();
  start();
  apply(text + "vars: {most: 4KiB}\n");
  wish.reconnect = true;
  EXPECT_EQ(attach(wish).attached().shard, 1);
  wish.job = "another";
  EXPECT_THAT(attach(wish).refusal(),
              HasSubstr("'limit' (--var, vars=) names no variable of pipeline"));
}

TEST_F(SessionsTest, KeepsOtherJobsThoughTheRecordOfOneCannotBeWritten) {
  const Rank odd = attach({.pipeline = "own",
                           .job = "odd",
                           .pipeline_yaml = yaml("own", "drop"),
                           .pipeline_file = "caf\xe9.yaml"});
  odd.batch();
  const Rank rank = attach({.job = "j"});
  sessions_->release(*rank.connection, rank.batch().lease);
  rank.batch();
  sessions_->tick();
  sessions_->stop();  // after what the tick has begun
  EXPECT_TRUE(store_->job({.uid = self_.uid, .job = "j", .pipeline = "p"})->has_value());
  EXPECT_FALSE(store_->job({.uid = self_.uid, .job = "odd", .pipeline = "own"})->has_value());
  EXPECT_EQ(store_->position({.uid = self_.uid, .job = "j", .pipeline = "p"})->value().at,
            (StepAt{0, 1}));
  EXPECT_TRUE(sessions_->warnings().empty());
}

TEST_F(SessionsTest, WaitsForAShardThatHasNotComeBackThroughASecondDeathOfTheDaemon) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  attach(wish).batch();
  wish.shard = 1;
  attach(wish).batch();
  wish.reconnect = true;
  wish.shard = 0;
  wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1};
  for (int death = 0; death < 3; ++death) {
    sessions_->suspend();
    stop();
    start();
    apply(yaml("p", "drop"));
    attach(wish).batch();
    const auto resized = sessions_->resize_job(self_, "j", "", 1);
    ASSERT_FALSE(resized);
    EXPECT_THAT(resized.error().message(), HasSubstr("shard 1 was read when the daemon stopped"));
  }
  clock_.advance(std::chrono::seconds(61));
  EXPECT_TRUE(sessions_->resize_job(self_, "j", "", 1));
}

TEST_F(SessionsTest, RefusesMoreConsumersOfAJobThanItCouldList) {
  JobRequest request = declared(0);
  request.num_shards = 1100;
  request.replicas = 64;
  request.pipeline = "padded";
  apply(yaml("padded", "pad"));
  const auto made = sessions_->create_job(self_, request);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("70400 consumers"));
  request.num_shards = 1000;
  ASSERT_TRUE(sessions_->create_job(self_, request));
  EXPECT_FALSE(sessions_->resize_job(self_, "j", "padded", 1100));
  EXPECT_THAT(
      attach({.pipeline = "padded", .job = "k", .shard = 0, .num_shards = 65536, .replicas = 2})
          .refusal(),
      HasSubstr("131072 consumers"));
}

TEST_F(SessionsTest, KeepsAJobsLimitsWhenItsRanksAreStartedAgain) {
  const Rank older = attach({.job = "j", .shard = 0, .num_shards = 1});
  older.attached();
  ASSERT_TRUE(sessions_->limit_job(self_, "j", "", {.weight = 3, .cpus = 2, .bytes = {}}));
  attach({.job = "j", .shard = 0, .num_shards = 2, .incarnation = 1}).attached();
  const auto job = sessions_->job(self_, "j", "");
  EXPECT_EQ(job->num_shards, 2U);
  EXPECT_EQ(job->limits.weight, 3);
  EXPECT_EQ(job->limits.cpus, 2U);
}

TEST_F(SessionsTest, TakesWhoComesInThePlaceOfOneThatWasYetToJumpToWhereTheJobWasSent) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  Rank other = attach({.job = "j", .shard = 1, .credits = 4});
  sessions_->release(*other.connection, other.batch().lease);
  std::vector<std::uint64_t> leases;
  for (int step = 1; step <= 4; ++step) leases.push_back(other.batch().lease);
  const Rank killed = attach({.job = "j", .shard = 0, .credits = 2});
  sessions_->release(*killed.connection, killed.batch().lease);
  killed.batch();  // has batches in hand, and does not come to where it jumps
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {30, 1}));
  const auto resized = sessions_->resize_job(self_, "j", "", 1);
  ASSERT_FALSE(resized);
  EXPECT_THAT(resized.error().message(), HasSubstr("takes it elsewhere"));
  StepAt from{2, 1};  // where all jump: behind the fifth of steps that come two an epoch
  other.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*other.connection, batch.lease);
    from = batch.step == 1 ? StepAt{batch.epoch + 1, 0} : StepAt{batch.epoch, batch.step + 1};
  };
  for (const std::uint64_t lease : leases) sessions_->release(*other.connection, lease);
  other.next<wire::ResetFrame>(wire::FrameType::kReset);
  hang_up(killed);

  Wish wish{.job = "j",
            .shard = 0,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1}};
  const Rank instead = attach(wish);
  wire::BatchFrame batch = instead.batch();
  EXPECT_EQ(batch.epoch, 0U);
  EXPECT_EQ(batch.step, 1U);
  hang_up(instead);
  // Or with the state of another one that is there already.
  wish.cursor = {.epoch = from.epoch, .position = from.step * 4, .step = from.step};
  EXPECT_EQ(attach(wish).attached().epoch, 30U);
}

TEST_F(SessionsTest, KeepsTheLedgerOfARunThoughAnotherOneWasRefused) {
  Wish wish{.job = "j"};
  const Rank rank = attach(wish);
  sessions_->release(*rank.connection, rank.batch().lease);
  hang_up(rank);
  sessions_->tick();
  wish.vars = {{"nosuch", "1"}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("names no variable"));
  wish.vars.clear();
  wish.shard = 7;
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("there is no shard 7"));
  wish.shard.reset();
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 1U);
}

TEST_F(SessionsTest, ForgetsTheLedgerOfAnEarlierRunOnceAnotherOneHasBegun) {
  Wish wish{.job = "j"};
  const Rank rank = attach(wish);
  sessions_->release(*rank.connection, rank.batch().lease);
  hang_up(rank);
  const Rank another = attach(wish);
  EXPECT_EQ(another.attached().step, 0U);
  EXPECT_EQ(sessions_->job(self_, "j", "")->ledger.at, StepAt{});
  hang_up(another);
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 0U);
}

TEST_F(SessionsTest, GoesOnInASmallerWorldWithBatchesThatTheLargerOneCouldNotHave) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 5};
  const Rank rank = attach(wish);
  rank.batch();
  hang_up(rank);
  wish.num_shards = 1;
  wish.batch_size = 4;  // of which five shards make no step of ten items
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().batch_size, 4U);
}

TEST_F(SessionsTest, ChangesAJobWhereItsRanksAreThoughItHadBeenStartedFurtherOn) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {50, 0}));
  const Rank rank = attach(
      {.job = "j", .cursor = delivery::StreamPosition{.epoch = 3, .position = 2, .step = 1}});
  rank.batch();
  const auto skipped = sessions_->skip_steps(self_, "j", "", 1);
  ASSERT_TRUE(skipped);
  EXPECT_LT(skipped->dealt_from.epoch, 10U);
}

TEST_F(SessionsTest, LeavesOutWhatItWasToldToThoughAllItsRanksAreStartedAgainBefore) {
  declare_on_more();
  Wish wish{.pipeline = "q", .job = "j"};
  const Rank rank = attach(wish);
  sessions_->release(*rank.connection, rank.batch().lease);
  rank.batch();
  const auto skipped = sessions_->skip_steps(self_, "j", "", 2);
  ASSERT_TRUE(skipped);
  const std::uint64_t from = skipped->dealt_from.step;
  hang_up(rank);
  wish.cursor = {.epoch = 0, .position = 2, .step = 1};
  const Rank again = attach(wish);
  for (std::uint64_t step = 1; step <= from; ++step) {
    const wire::BatchFrame batch = again.batch();
    EXPECT_EQ(batch.step, step);
    EXPECT_EQ(batch.next_position, (step + 1 + (step == from ? 2 : 0)) * 2);
    sessions_->release(*again.connection, batch.lease);
  }
}

TEST_F(SessionsTest, LeavesTheSameOutForRanksThatGoBackHoweverFarTheyWere) {
  declare_on_more();
  Wish wish{.pipeline = "q", .job = "j"};
  Rank rank = attach(wish);
  for (int step = 0; step < 4; ++step) sessions_->release(*rank.connection, rank.batch().lease);
  const auto skipped = sessions_->skip_steps(self_, "j", "", 2);
  ASSERT_TRUE(skipped);
  const std::uint64_t from = skipped->dealt_from.step;
  ASSERT_GT(from, 2U);
  sessions_->seek(*rank.connection,
                  {.to = {.epoch = 0, .position = (from - 1) * 2, .step = from - 1}, .serial = 1});
  rank.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*rank.connection, batch.lease);
  };
  rank.next<wire::ResetFrame>(wire::FrameType::kReset);
  while (rank.next<wire::ResetFrame>(wire::FrameType::kReset).seek != 1) {
  }
  EXPECT_EQ(rank.batch().next_position, from * 2);
  EXPECT_EQ(rank.batch().next_position, (from + 3) * 2);
}

TEST_F(SessionsTest, ForgetsRecordsOfEndedJobsThatAreOlderThanItRetainsThem) {
  const auto record = [](const std::string& name, bool is_declared, std::uint64_t kept) {
    StoredJob job;
    job.key = {.uid = getuid(), .job = name, .pipeline = "p"};
    job.declared = is_declared;
    job.kept_unix_ms = kept;
    return job;
  };
  const std::uint64_t now = unix_ms();
  const std::uint64_t week = std::uint64_t{7} * 24 * 3600 * 1000;
  ASSERT_TRUE(store_
                  ->put_jobs({record("old", false, now - week - 1000),
                              record("young", false, now - week + 600'000),
                              record("declared", true, now - week - 1000)})
                  .ok());
  ASSERT_TRUE(store_
                  ->put_jobs({}, {{.key = record("old", false, 0).key,
                                   .at = {1, 1},
                                   .position = 2,
                                   .kept_unix_ms = now - week - 1000}})
                  .ok());
  sessions_->tick();
  sessions_->stop();  // after what the tick has begun
  EXPECT_FALSE(store_->job(record("old", false, 0).key)->has_value());
  EXPECT_FALSE(store_->position(record("old", false, 0).key)->has_value());
  EXPECT_TRUE(store_->job(record("young", false, 0).key)->has_value());
  EXPECT_TRUE(store_->job(record("declared", true, 0).key)->has_value());
}

}  // namespace
}  // namespace spdld::session

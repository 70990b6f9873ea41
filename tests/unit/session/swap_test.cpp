// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/session/session_layer.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kBeyondTheHold{31};

// One job on a pipeline of forty small files in batches of two: twenty steps.
class SwapTest : public SessionLayer {
 protected:
  void SetUp() override {
    for (int i = 0; i < 40; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    files_.file("fewer/0.bin", "bytes");
    start();
    const auto applied = service_->apply(self_, request(4), nullptr);
    ASSERT_TRUE(applied) << applied.error().message();
  }
  void start() {
    SessionLayer::start();
    service_->restore({});
  }
  void restart() {
    stop();
    start();
  }

  // Versions differ in what a row may take, which nothing that a rank sees does.
  ApplyRequest request(int max_kib, const std::string& data = "data") const {
    ApplyRequest request;
    request.yaml = "pipeline: p\nsource:\n  files: {root: " + files_.path(data) +
                   ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n" +
                   "batch: {size: 2, max_bytes: " + std::to_string(max_kib) + "KiB, last: drop}\n";
    request.file = "-";
    return request;
  }
  // What a row may take is its variable `limit`.
  ApplyRequest limited(const std::string& note = "none") const {
    ApplyRequest request = this->request(4);
    request.yaml.replace(request.yaml.find("4KiB"), 4, "\"${limit}\"");
    request.yaml += "vars: {limit: 4KiB, note: " + note + "}\n";
    return request;
  }
  void declare(const std::string& name = "j", std::uint32_t num_shards = 1) {
    JobRequest job;
    job.job = name;
    job.pipeline = "p";
    job.num_shards = num_shards;
    ASSERT_TRUE(service_->create_job(self_, job, nullptr));
  }
  // Beside the store, on its file.
  void run_sql(const char* statement) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(files_.path("state/spdld.sqlite").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, statement, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  Rank attach(std::optional<delivery::StreamPosition> cursor = {}, std::uint32_t incarnation = 0) {
    Rank rank = connect();
    delivery::AttachRequest request;
    request.pipeline = "p";
    request.job = "j";
    request.credits = 2;
    request.incarnation = incarnation;
    if (cursor) {
      request.reconnect = true;
      request.start = wire::StartMode::kCursor;
      request.cursor = *cursor;
    }
    sessions_->attach(rank.connection, std::move(request));
    return rank;
  }
  // Reads and gives back up to the batch of this step.
  void read_up_to(const Rank& rank, std::uint64_t step) {
    while (true) {
      const wire::BatchFrame batch = rank.batch();
      ASSERT_FALSE(HasFailure());
      sessions_->release(*rank.connection, batch.lease);
      ASSERT_LE(batch.step, step);
      if (batch.step == step) return;
    }
  }
  // What a rank is told that could have a batch and gets none.
  std::string why_it_waits(const Rank& rank) {
    std::string text;
    sessions_->heartbeat();
    rank.next<wire::ProgressFrame>(wire::FrameType::kProgress, &text);
    return text;
  }
  Result<SwapView> prepare(StepAt step, int max_kib = 8) {
    return service_->prepare_swap(self_, request(max_kib),
                                  {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = step}},
                                  nullptr);
  }
  std::vector<PhaseView> phases() { return service_->job(self_, "j", "")->phases; }
  std::uint32_t version() { return service_->pipeline(self_, "p")->version; }
};

TEST_F(SwapTest, HaltsARankAtThePointUntilTheSwapIsCommitted) {
  const Rank rank = attach();
  rank.batch();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  EXPECT_EQ(prepared->hold_ms, 30'000U);
  EXPECT_EQ(prepared->jobs.front().from, (StepAt{0, 9}));
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
  const auto done = service_->commit_swap(self_, prepared->token);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(rank.next<wire::SchemaFrame>(wire::FrameType::kSchema).pipeline_version, 2U);
  EXPECT_EQ(rank.batch().step, 9U);
  EXPECT_EQ(version(), 2U);
}

TEST_F(SwapTest, LetsARankGoOnAsItWasWhenTheSwapIsAborted) {
  const Rank rank = attach();
  rank.batch();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  ASSERT_TRUE(service_->abort_swap(self_, prepared->token).ok());
  EXPECT_TRUE(service_->abort_swap(self_, prepared->token).ok()) << "twice is no error";
  EXPECT_EQ(rank.batch().step, 9U);
  EXPECT_EQ(phases().size(), 1U);
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(service_->commit_swap(self_, prepared->token).error().code(), Code::kNotFound);
}

TEST_F(SwapTest, LetsARankGoOnWhenNobodyCommitsInTime) {
  const Rank rank = attach();
  rank.batch();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  service_->tick();
  EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
  clock_.advance(kBeyondTheHold);
  service_->tick();
  EXPECT_EQ(rank.batch().step, 9U);
  EXPECT_EQ(service_->commit_swap(self_, prepared->token).error().code(), Code::kNotFound);
  EXPECT_TRUE(store_->prepared()->empty());
}

TEST_F(SwapTest, AnswersASecondCommitLikeTheFirst) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  for (const bool after_restart : {false, true}) {
    if (after_restart) restart();
    const auto again = service_->commit_swap(self_, prepared->token);
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(again->jobs.front().from, (StepAt{0, 9}));
    EXPECT_EQ(again->jobs.front().version, 2U);
    EXPECT_EQ(service_->abort_swap(self_, prepared->token).code(), Code::kFailedPrecondition);
  }
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, KeepsWhatIsPreparedFromOthers) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  const Caller other{{.uid = self_.uid + 1}, 1};
  EXPECT_EQ(service_->commit_swap(other, prepared->token).error().code(), Code::kNotFound);
  EXPECT_TRUE(service_->abort_swap(other, prepared->token).ok());
  EXPECT_TRUE(service_->commit_swap(self_, prepared->token));
}

TEST_F(SwapTest, CommitsToADeclaredJobWhatAnEarlierDaemonHasPrepared) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  restart();
  EXPECT_EQ(version(), 1U);
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
  const auto done = service_->commit_swap(self_, prepared->token);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->jobs.front().version, 2U);
  EXPECT_EQ(rank.batch().step, 9U);
  restart();
  EXPECT_EQ(version(), 2U);
  ASSERT_EQ(phases().size(), 2U);
  EXPECT_EQ(phases().back().from, (StepAt{0, 9}));
}

TEST_F(SwapTest, CommitsToAJobThatItsRanksMadeWhatAnEarlierDaemonHasPrepared) {
  {
    const Rank rank = attach();
    ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
    const auto prepared = prepare({0, 9});
    ASSERT_TRUE(prepared) << prepared.error().message();
    restart();
    // Before its rank is back.
    const auto done = service_->commit_swap(self_, prepared->token);
    ASSERT_TRUE(done) << done.error().message();
  }
  EXPECT_TRUE(service_->jobs(self_).empty()) << "its ranks bring it back, if they come";
  const Rank rank = attach(delivery::StreamPosition{.epoch = 0, .position = 8, .step = 4});
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 9));
  ASSERT_EQ(phases().size(), 2U);
  EXPECT_EQ(phases().back().from, (StepAt{0, 9}));
  EXPECT_EQ(phases().back().pipeline_version, 2U);
}

TEST_F(SwapTest, AbortsAfterARestartWhatNobodyCommitsInTime) {
  declare();
  ASSERT_TRUE(prepare({0, 9}));
  restart();
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
  clock_.advance(kBeyondTheHold);
  service_->tick();
  EXPECT_EQ(rank.batch().step, 9U);
}

TEST_F(SwapTest, ForgetsWhatWasPreparedWhenItsHoldEndsBeforeTheDaemonIsBack) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  stop();
  clock_.advance(kBeyondTheHold);
  start();
  EXPECT_EQ(service_->commit_swap(self_, prepared->token).error().code(), Code::kNotFound);
  EXPECT_TRUE(store_->prepared()->empty());
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 12));
  EXPECT_EQ(phases().size(), 1U);
}

TEST_F(SwapTest, LeavesThePlaceToWhatIsPreparedThoughALoaderBringsAnother) {
  declare();
  const auto bring = [this] {
    Rank rank = connect();
    delivery::AttachRequest brought;
    brought.pipeline = "p";
    brought.job = "other";
    brought.pipeline_yaml = request(8).yaml + "seed: 7\n";
    brought.vars = request(8).vars;
    brought.replace = delivery::Replace::kAlways;
    sessions_->attach(rank.connection, std::move(brought));
    return rank;
  };
  const auto prepared = prepare({1, 0});
  ASSERT_TRUE(prepared) << prepared.error().message();
  EXPECT_THAT(bring().refusal(), HasSubstr("is about to change: an apply of version 2"));
  EXPECT_EQ(version(), 1U);
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  EXPECT_EQ(version(), 2U);
  bring().attached();
  EXPECT_EQ(version(), 3U);
  EXPECT_EQ(service_->history(self_, "p")->size(), 3U);
}

TEST_F(SwapTest, AbortsAfterARestartWhatCannotBeBuiltAnyMore) {
  declare();
  const auto prepared = service_->prepare_swap(
      self_,
      [this] {
        ApplyRequest other = request(8);
        other.vars = {};
        other.yaml += "seed: 7\n";
        other.yaml.replace(other.yaml.find("data"), 4, "fewer");
        other.yaml.replace(other.yaml.find("last: drop"), 10, "last: pad");
        return other;
      }(),
      {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = {1, 0}}}, nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  files_.remove("fewer/0.bin");
  restart();
  EXPECT_THAT(service_->daemon(self_).warnings,
              ::testing::Contains(HasSubstr("a swap that was prepared is aborted")));
  EXPECT_EQ(service_->commit_swap(self_, prepared->token).error().code(), Code::kNotFound);
  EXPECT_EQ(attach().batch().step, 0U);
}

TEST_F(SwapTest, LetsNobodyChangeThePipelineOrTheJobWhileASwapIsPrepared) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  const auto refused = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("has been prepared"));
  };
  refused(service_->apply(self_, request(16), nullptr).error());
  refused(prepare({0, 5}, 16).error());
  refused(service_
              ->swap(self_, request(16),
                     {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr)
              .error());
  refused(service_->resize_job(self_, "j", "", 2).error());
  refused(service_->seek(self_, "j", "", 0, 2).error());
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  EXPECT_TRUE(service_->apply(self_, request(16), nullptr));
}

TEST_F(SwapTest, HaltsARankThatComesWhileASwapIsPrepared) {
  declare();
  const auto prepared = prepare({0, 2});
  ASSERT_TRUE(prepared) << prepared.error().message();
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 1));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  EXPECT_EQ(rank.batch().step, 2U);
}

TEST_F(SwapTest, CommitsToAJobWhoseRanksHaveAllLeftMeanwhile) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  sessions_->closed(*rank.connection, delivery::CloseCause::kHangUp);
  sessions_->exited(*rank.connection);
  std::erase(connections_, rank.connection);
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  const Rank back = attach(delivery::StreamPosition{.epoch = 0, .position = 8, .step = 4});
  ASSERT_NO_FATAL_FAILURE(read_up_to(back, 9));
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, CommitsWhileAnotherSwapIsBeingPlanned) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  MutexLock another_is_planned(sessions_->swapping());
  EXPECT_TRUE(service_->commit_swap(self_, prepared->token));
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, BringsNoJobBackThatWasDeletedBeforeTheCommit) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  ASSERT_TRUE(service_->delete_job(self_, "j", ""));
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  EXPECT_EQ(version(), 2U);
  restart();
  EXPECT_TRUE(service_->jobs(self_).empty());
}

TEST_F(SwapTest, SendsANewerIncarnationAwayUntilTheSwapIsCommitted) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  const Rank newer = attach({}, 1);
  EXPECT_EQ(newer.next<wire::ErrorFrame>(wire::FrameType::kError).code,
            static_cast<std::uint32_t>(Code::kUnavailable));
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
  EXPECT_EQ(rank.batch().step, 9U);
  EXPECT_EQ(attach({}, 1).batch().step, 0U);
}

TEST_F(SwapTest, KeepsTheNameOfWhatWasTunedWhenTheJobIsDealtAnew) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  ApplyRequest tuned = request(4);
  tuned.yaml.replace(tuned.yaml.find("- fetch"), 7, "- fetch: {concurrency: 3}");
  const auto done = service_->swap(
      self_, tuned, {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_TRUE(done->jobs.front().tuned);
  ASSERT_TRUE(service_->skip(self_, "j", "", 1));
  for (const PhaseView& phase : phases()) EXPECT_EQ(phase.pipeline_version, 2U);
  EXPECT_TRUE(service_->swap(
      self_, request(8), {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr));
}

TEST_F(SwapTest, RefusesToPrepareAPointThatOnlyThisDaemonKnows) {
  declare();
  for (const SwapAt::Kind kind : {SwapAt::Kind::kNow, SwapAt::Kind::kNextEpoch}) {
    const auto prepared = service_->prepare_swap(
        self_, request(8), {.job = "j", .at = {.kind = kind, .step = {}}}, nullptr);
    ASSERT_FALSE(prepared);
    EXPECT_EQ(prepared.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(SwapTest, ChangesNoJobWhenOneOfThemCannotChange) {
  declare("j");
  declare("k");
  ASSERT_TRUE(service_->seek(self_, "k", "", 0, 12));
  const auto done = service_->swap(
      self_, request(8), {.job = "", .at = {.kind = SwapAt::Kind::kStep, .step = {0, 9}}}, nullptr);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr("job 'k' has passed epoch 0, step 9"));
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 12));
  ASSERT_TRUE(service_->swap(self_, request(8),
                             {.job = "", .at = {.kind = SwapAt::Kind::kStep, .step = {0, 18}}},
                             nullptr));
  EXPECT_EQ(service_->job(self_, "k", "")->phases.back().from, (StepAt{0, 18}));
  EXPECT_EQ(phases().back().from, (StepAt{0, 18}));
}

TEST_F(SwapTest, LeavesTheJobAsItIsWhenThereIsNoRoomForBoth) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  const std::uint64_t used = service_->job(self_, "j", "")->arena_bytes;
  LimitChange no_more;
  no_more.bytes = used + 1;
  ASSERT_TRUE(service_->limit_job(self_, "j", "", no_more));
  const auto done = service_->swap(
      self_, request(8), {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, PutsOffWhatLiesAheadAndHaltsARankWhereItWasToBegin) {
  for (const bool commits : {false, true}) {
    const Rank rank = attach();
    rank.attached();
    ASSERT_TRUE(service_->swap(self_, request(8),
                               {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = {30, 9}}},
                               nullptr));
    const std::uint32_t later = version();
    const auto prepared = prepare({30, 15});
    ASSERT_TRUE(prepared) << prepared.error().message();
    EXPECT_EQ(prepared->jobs.front().replaces, (std::vector<PlannedChange>{{later, {30, 9}}}));
    for (int epoch = 0; epoch < 30; ++epoch) ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
    ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
    EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
    if (commits) {
      ASSERT_TRUE(service_->commit_swap(self_, prepared->token));
      ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 14));
    } else {
      ASSERT_TRUE(service_->abort_swap(self_, prepared->token).ok());
    }
    EXPECT_EQ(rank.next<wire::SchemaFrame>(wire::FrameType::kSchema).pipeline_version, later);
    EXPECT_EQ(rank.batch().step, commits ? 15U : 9U);
    ASSERT_EQ(phases().size(), 2U);
    EXPECT_EQ(phases().back().from, (StepAt{30, commits ? 15U : 9U}));
    ASSERT_TRUE(service_->delete_job(self_, "j", ""));
    hang_up(rank);
    ASSERT_TRUE(service_->rollback(self_, "p", 1, std::nullopt, nullptr));
  }
}

TEST_F(SwapTest, PutsOffAfterARestartWhatAnEarlierDaemonWasToPutOff) {
  declare();
  ASSERT_TRUE(service_->swap(self_, request(8),
                             {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = {0, 9}}},
                             nullptr));
  const auto prepared = prepare({0, 15});
  ASSERT_TRUE(prepared) << prepared.error().message();
  restart();
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("prepared but not committed yet"));
  const auto done = service_->commit_swap(self_, prepared->token);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->jobs.front().replaces, (std::vector<PlannedChange>{{2, {0, 9}}}));
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 14));
  EXPECT_EQ(rank.next<wire::SchemaFrame>(wire::FrameType::kSchema).pipeline_version, 2U);
  ASSERT_EQ(phases().size(), 2U);
  EXPECT_EQ(phases().back().from, (StepAt{0, 15}));
}

TEST_F(SwapTest, NamesAWeightThatNoJobCanHaveInFewDigits) {
  declare();
  LimitChange heavy;
  heavy.weight = 1e300;
  const auto refused = service_->limit_job(self_, "j", "", heavy);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "a weight of 1e+300 is not between 0.001 and 1000");
}

TEST_F(SwapTest, LeavesEverythingAsItIsWhenNothingCanBeWritten) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  run_sql("DROP TABLE revisions");
  const auto committed = service_->commit_swap(self_, prepared->token);
  ASSERT_FALSE(committed);
  EXPECT_THAT(committed.error().message(), HasSubstr("pipeline 'p' and its jobs stay as they are"));
  const auto swapped = service_->swap(
      self_, request(8), {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
  ASSERT_FALSE(swapped);
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, PreparesNothingThatCannotBeKept) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  run_sql("DROP TABLE prepared");
  EXPECT_FALSE(prepare({0, 9}));
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, TellsAConsumerThatItsApplyIsUnderWay) {
  const Rank rank = attach();
  rank.batch();
  delivery::ApplyWish wish;
  wish.serial = 7;
  wish.at = wire::ApplyAt::kNow;
  wish.vars = {{"nobody", "1"}};
  std::string answer;
  {
    MutexLock another_is_under_way(sessions_->swapping());
    sessions_->apply(*rank.connection, wish);
    EXPECT_THAT(why_it_waits(rank), HasSubstr("the change of the pipeline is being prepared"));
  }
  EXPECT_EQ(rank.next<wire::BlobFrame>(wire::FrameType::kBlob, &answer).serial, 7U);
  EXPECT_THAT(answer, HasSubstr("nobody"));
}

TEST_F(SwapTest, HasARankAskAgainWhileAnotherIsYetToComeThatMayBeginBefore) {
  ASSERT_TRUE(service_->apply(self_, limited(), nullptr));
  declare("j", 2);
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {50, 1}));
  const delivery::StreamPosition cursor{.epoch = 0, .position = 4, .step = 1};
  const Rank rank = attach(cursor);
  rank.attached();
  const auto apply = [&] {
    sessions_->apply(
        *rank.connection,
        {.serial = 1, .at = wire::ApplyAt::kStep, .epoch = 40, .vars = {{"limit", "6KiB"}}});
    std::string answer;
    rank.next<wire::BlobFrame>(wire::FrameType::kBlob, &answer);
    return answer;
  };
  EXPECT_THAT(apply(), HasSubstr("\"code\":14")) << "kUnavailable";
  const Rank other = attach(cursor);
  other.attached();
  EXPECT_THAT(apply(), HasSubstr("\"epoch\":40"));
}

TEST_F(SwapTest, EndsAConsumerThatAsksAgainAndAgainWithoutAnAnswer) {
  const Rank rank = attach();
  rank.batch();
  MutexLock another_is_under_way(sessions_->swapping());
  for (int i = 0; i < 5; ++i) sessions_->apply(*rank.connection, {});
  EXPECT_TRUE(rank.connection->ending());
}

TEST_F(SwapTest, CommitsNothingThatHasFailedWhileItWasPrepared) {
  files_.file("data/9.bin", std::string(2048, 'x'));  // the last item
  const Rank rank = attach();
  rank.attached();
  ApplyRequest failing = request(1);
  failing.yaml += "on_error: {decode: fail}\n";
  const auto built = catalogue_->build(catalogue_->owner_for(self_.uid), failing, nullptr);
  ASSERT_TRUE(built) << built.error().message();
  const SwapAt at{.kind = SwapAt::Kind::kStep, .step = {0, 17}};
  auto swaps = sessions_->plan_swaps(self_, *catalogue_->numbered(self_.uid, *built),
                                     {.job = "j", .at = at}, nullptr);
  ASSERT_TRUE(swaps) << swaps.error().message();
  ASSERT_TRUE(sessions_->prepare_swaps(*swaps, at).ok());
  read_up_to(rank, 16);
  Status prepared;
  while (prepared.ok()) {
    std::this_thread::yield();
    prepared = sessions_->check_prepared(*swaps);
  }
  EXPECT_THAT(prepared.message(), HasSubstr("job 'j' goes on with what it has"));
  EXPECT_THAT(prepared.message(), AllOf(HasSubstr("item 39 (9.bin): its field 'image' takes 2048"),
                                        HasSubstr("may take 1024: raise batch.max_bytes")));
  sessions_->abort_swaps(*swaps);
  EXPECT_EQ(rank.batch().step, 17U);
}

TEST_F(SwapTest, GoesByWhatARankHasSaidThoughAnOperatorHadSaidTheSameBefore) {
  ASSERT_TRUE(service_->apply(self_, limited("a"), nullptr));
  const Rank rank = attach();
  rank.attached();
  const SwapRequest now{.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}};
  ApplyRequest given = limited("a");
  given.vars = {{"limit", "6KiB"}};
  ASSERT_TRUE(service_->swap(self_, given, now, nullptr));
  sessions_->apply(*rank.connection,
                   {.serial = 1, .at = wire::ApplyAt::kNow, .vars = {{"limit", "6KiB"}}});
  std::string answer;
  rank.next<wire::BlobFrame>(wire::FrameType::kBlob, &answer);
  EXPECT_THAT(answer, Not(HasSubstr("error")));
  ASSERT_TRUE(service_->swap(self_, limited("b"), now, nullptr));
  EXPECT_EQ(phases().back().vars.at("limit"), "6KiB");
}

TEST_F(SwapTest, AReplicaThatDiedBeforeTheSwapWasGivenUpGoesOnWithTheOthers) {
  const auto come = [&](std::uint32_t replica, std::optional<std::uint64_t> step) {
    Rank rank = connect();
    delivery::AttachRequest request;
    request.pipeline = "p";
    request.job = "j";
    request.credits = 2;
    request.shard = 0;
    request.num_shards = 1;
    request.replicas = 2;
    request.replica = std::to_string(replica);
    if (step) {
      request.reconnect = true;
      request.start = wire::StartMode::kCursor;
      request.cursor = {.epoch = 0, .position = *step * 2, .step = *step};
    }
    sessions_->attach(rank.connection, std::move(request));
    return rank;
  };
  const Rank stays = come(0, {});
  const Rank killed = come(1, {});
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  std::thread other([&] { read_up_to(killed, 8); });
  read_up_to(stays, 8);
  other.join();
  hang_up(killed);
  ASSERT_TRUE(service_->abort_swap(self_, prepared->token).ok());
  read_up_to(stays, 12);
  const Rank back = come(1, 9);
  EXPECT_EQ(back.batch().step, 9U);
}

}  // namespace
}  // namespace spdld::session

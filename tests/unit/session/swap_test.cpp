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
  job::ApplyRequest request(int max_kib, const std::string& data = "data") const {
    job::ApplyRequest request;
    request.yaml = "pipeline: p\nsource:\n  files: {root: " + files_.path(data) +
                   ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n" +
                   "batch: {size: 2, max_bytes: " + std::to_string(max_kib) + "KiB, last: drop}\n";
    request.file = "-";
    return request;
  }
  // What a row may take is its variable `limit`.
  job::ApplyRequest limited(const std::string& note = "none") const {
    job::ApplyRequest request = this->request(4);
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
    const MutexLock nobody_writes(sessions_->records());
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
  Result<std::vector<PlannedSwap>> prepare(job::StepAt step, int max_kib = 8) {
    return prepared_swaps(request(max_kib), to_step(step));
  }
  void swap_to_batches_of_four(job::StepAt step) {
    job::ApplyRequest larger = request(4);
    larger.yaml.replace(larger.yaml.find("size: 2"), 7, "size: 4");
    SwapRequest allowed = to_step(step);
    allowed.allow_schema_change = true;
    ASSERT_TRUE(service_->swap(self_, larger, allowed, nullptr));
  }
  static SwapRequest to_step(job::StepAt step) {
    return {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = step}};
  }
  std::vector<job::PhaseView> phases() { return service_->job(self_, "j", "")->phases; }
  std::uint32_t version() { return service_->pipeline(self_, "p")->version; }
};

TEST_F(SwapTest, HaltsARankAtThePointUntilTheSwapIsCommitted) {
  const Rank rank = attach();
  rank.batch();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  EXPECT_EQ(prepared->front().from, (job::StepAt{0, 9}));
  EXPECT_EQ(phases().size(), 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("apply is not on disk yet"));
  sessions_->commit_swaps(*prepared);
  EXPECT_EQ(rank.next<wire::SchemaFrame>(wire::FrameType::kSchema).pipeline_version, 2U);
  EXPECT_EQ(rank.batch().step, 9U);
}

TEST_F(SwapTest, LetsARankGoOnAsItWasWhenTheSwapIsAborted) {
  const Rank rank = attach();
  rank.batch();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
  sessions_->abort_swaps(*prepared);
  EXPECT_EQ(rank.batch().step, 9U);
  EXPECT_EQ(phases().size(), 1U);
}

TEST_F(SwapTest, LetsNobodyChangeTheJobWhileASwapIsPrepared) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  const auto refused = [](const Status& status) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("an apply is under way"));
  };
  refused(prepare({0, 5}, 16).error());
  refused(service_->resize_job(self_, "j", "", 2).error());
  refused(service_->seek(self_, "j", "", 0, 2).error());
  sessions_->commit_swaps(*prepared);
  EXPECT_TRUE(service_->seek(self_, "j", "", 0, 2));
}

TEST_F(SwapTest, HaltsARankThatComesWhileASwapIsPrepared) {
  declare();
  const auto prepared = prepare({0, 2});
  ASSERT_TRUE(prepared) << prepared.error().message();
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 1));
  EXPECT_THAT(why_it_waits(rank), HasSubstr("apply is not on disk yet"));
  sessions_->commit_swaps(*prepared);
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
  sessions_->commit_swaps(*prepared);
  const Rank back = attach(delivery::StreamPosition{.epoch = 0, .position = 8, .step = 4});
  ASSERT_NO_FATAL_FAILURE(read_up_to(back, 9));
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, BringsNoJobBackThatWasDeletedBeforeTheCommit) {
  declare();
  const auto prepared = prepare({0, 9});
  ASSERT_TRUE(prepared) << prepared.error().message();
  ASSERT_TRUE(service_->delete_job(self_, "j", ""));
  sessions_->commit_swaps(*prepared);
  EXPECT_TRUE(sessions_->stored_after(*prepared).empty());
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
  sessions_->commit_swaps(*prepared);
  EXPECT_EQ(rank.batch().step, 9U);
  EXPECT_EQ(attach({}, 1).batch().step, 0U);
}

TEST_F(SwapTest, KeepsTheNameOfWhatWasTunedWhenTheJobIsDealtAnew) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  job::ApplyRequest tuned = request(4);
  tuned.yaml.replace(tuned.yaml.find("- fetch"), 7, "- fetch: {concurrency: 3}");
  const auto done = service_->swap(
      self_, tuned, {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_TRUE(done->jobs.front().tuned);
  ASSERT_TRUE(service_->skip(self_, "j", "", 1));
  for (const job::PhaseView& phase : phases()) EXPECT_EQ(phase.pipeline_version, 2U);
  EXPECT_TRUE(service_->swap(
      self_, request(8), {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr));
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
  EXPECT_EQ(service_->job(self_, "k", "")->phases.back().from, (job::StepAt{0, 18}));
  EXPECT_EQ(phases().back().from, (job::StepAt{0, 18}));
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
    EXPECT_EQ(prepared->front().replaces, (std::vector<job::PlannedChange>{{later, {30, 9}}}));
    for (int epoch = 0; epoch < 30; ++epoch) ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
    ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 8));
    EXPECT_THAT(why_it_waits(rank), HasSubstr("apply is not on disk yet"));
    if (commits) {
      sessions_->commit_swaps(*prepared);
      ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 14));
    } else {
      sessions_->abort_swaps(*prepared);
    }
    EXPECT_EQ(rank.next<wire::SchemaFrame>(wire::FrameType::kSchema).pipeline_version, later);
    EXPECT_EQ(rank.batch().step, commits ? 15U : 9U);
    ASSERT_EQ(phases().size(), 2U);
    EXPECT_EQ(phases().back().from, (job::StepAt{30, commits ? 15U : 9U}));
    ASSERT_TRUE(service_->delete_job(self_, "j", ""));
    hang_up(rank);
    ASSERT_TRUE(service_->rollback(self_, "p", 1, std::nullopt, nullptr));
  }
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
  run_sql("DROP TABLE revisions");
  const auto swapped = service_->swap(
      self_, request(8), {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
  ASSERT_FALSE(swapped);
  EXPECT_THAT(swapped.error().message(), HasSubstr("pipeline 'p' and its jobs stay as they are"));
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
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
  EXPECT_EQ(rank.next<wire::RefusedFrame>(wire::FrameType::kRefused, &answer).serial, 7U);
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
  };
  apply();
  EXPECT_EQ(rank.next<wire::RefusedFrame>(wire::FrameType::kRefused).code, 14U) << "kUnavailable";
  const Rank other = attach(cursor);
  other.attached();
  apply();
  EXPECT_EQ(rank.next<wire::AppliedFrame>(wire::FrameType::kApplied).epoch, 40U);
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
  job::ApplyRequest failing = request(1);
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
  job::ApplyRequest given = limited("a");
  given.vars = {{"limit", "6KiB"}};
  ASSERT_TRUE(service_->swap(self_, given, now, nullptr));
  sessions_->apply(*rank.connection,
                   {.serial = 1, .at = wire::ApplyAt::kNow, .vars = {{"limit", "6KiB"}}});
  rank.next<wire::AppliedFrame>(wire::FrameType::kApplied);
  ASSERT_TRUE(service_->swap(self_, limited("b"), now, nullptr));
  EXPECT_EQ(phases().back().vars.at("limit"), "6KiB");
}

TEST_F(SwapTest, DryRunSaysWhatLiesAheadAndChangesNothing) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  job::ApplyRequest dry = request(8);
  dry.dry_run = true;
  const auto ask = [&] { return service_->swap(self_, dry, to_step({0, 15}), nullptr); };
  const auto first = ask();
  ASSERT_TRUE(first) << first.error().message();
  const JobSwap& job = first->jobs.front();
  EXPECT_EQ(job.version, 2U);
  EXPECT_EQ(job.from, (job::StepAt{0, 15}));
  ASSERT_TRUE(job.outlook);
  EXPECT_EQ(job.outlook->version_before, 1U);
  EXPECT_GT(job.outlook->frontier, (job::StepAt{0, 3}));
  EXPECT_LT(job.outlook->frontier, (job::StepAt{0, 15}));
  EXPECT_EQ(job.outlook->steps_per_epoch, 20U);
  EXPECT_EQ(job.outlook->steps_per_s, std::nullopt) << "it has only just come";
  EXPECT_FALSE(job.outlook->known);
  EXPECT_EQ(phases().size(), 1U);
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(service_->history(self_, "p")->size(), 1U);

  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 15}), nullptr));
  const auto known = ask();
  ASSERT_TRUE(known) << known.error().message();
  EXPECT_TRUE(known->jobs.front().outlook->known);
  EXPECT_EQ(known->jobs.front().outlook->version_before, 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, DryRunTellsThePaceOfTheFastestRank) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  sessions_->tick();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 9));
  clock_.advance(std::chrono::seconds(2));
  sessions_->tick();
  job::ApplyRequest dry = request(8);
  dry.dry_run = true;
  const auto asked = service_->swap(self_, dry, to_step({1, 0}), nullptr);
  ASSERT_TRUE(asked) << asked.error().message();
  const auto pace = asked->jobs.front().outlook->steps_per_s;
  ASSERT_TRUE(pace);
  EXPECT_GT(*pace, 0);
  EXPECT_LE(*pace, 4.0) << "at most 8 steps in at least 2 s";
}

TEST_F(SwapTest, DryRunGivesStandingRanksOneStepPerSecond) {
  declare();
  job::ApplyRequest dry = request(8);
  dry.dry_run = true;
  const auto pace = [&] {
    const auto asked = service_->swap(self_, dry, to_step({1, 0}), nullptr);
    EXPECT_TRUE(asked) << asked.error().message();
    return asked->jobs.front().outlook->steps_per_s;
  };
  EXPECT_EQ(pace(), 0.0) << "no rank is attached";
  const Rank rank = attach();
  rank.attached();
  sessions_->tick();
  clock_.advance(std::chrono::seconds(20));
  sessions_->tick();
  EXPECT_EQ(pace(), 1.0);
}

TEST_F(SwapTest, OperatorsSwapIsRefusedWhileARankIsAwaited) {
  declare("j", 2);
  const Rank first = attach();
  const Rank second = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(first, 3));
  ASSERT_NO_FATAL_FAILURE(read_up_to(second, 3));
  sessions_->suspend();
  restart();
  const auto refused = service_->swap(self_, request(8), to_step({2, 0}), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("has not come back yet"));
}

TEST_F(SwapTest, OperatorsSwapIsRefusedBeforeARankHasJumped) {
  ASSERT_TRUE(service_->apply(self_, limited(), nullptr));
  const Rank rank = attach();
  rank.batch();
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {2, 0}));
  const auto refused = service_->swap(self_, request(8), to_step({4, 0}), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("where the last seek takes it elsewhere"));
  sessions_->apply(*rank.connection,
                   {.serial = 1, .at = wire::ApplyAt::kNow, .vars = {{"limit", "6KiB"}}});
  EXPECT_EQ(rank.next<wire::RefusedFrame>(wire::FrameType::kRefused).code, 14U) << "kUnavailable";
}

TEST_F(SwapTest, DryRunIsRefusedWhereTheSwapWouldBe) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 9));
  job::ApplyRequest dry = request(8);
  dry.dry_run = true;
  const auto asked = service_->swap(self_, dry, to_step({0, 5}), nullptr);
  ASSERT_FALSE(asked);
  EXPECT_THAT(asked.error().message(), HasSubstr("has passed epoch 0, step 5"));
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, RollbackBeforeAPlannedStepOnlyDropsTheChange) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  swap_to_batches_of_four({0, 15});
  ASSERT_EQ(phases().size(), 2U);
  ASSERT_EQ(version(), 2U);

  const auto back = service_->rollback(self_, "p", 1, to_step({0, 15}), nullptr);
  ASSERT_TRUE(back) << back.error().message();
  const JobSwap& job = back->jobs.front();
  EXPECT_EQ(job.version, 1U);
  EXPECT_TRUE(job.runs);
  EXPECT_EQ(job.from, (job::StepAt{0, 0}));
  EXPECT_EQ(job.replaces, (std::vector<job::PlannedChange>{{2, {0, 15}}}));
  EXPECT_EQ(back->pipeline.version, 1U);
  EXPECT_EQ(back->repeats, 1U);
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(service_->history(self_, "p")->size(), 1U);
  ASSERT_EQ(phases().size(), 1U);
  EXPECT_EQ(phases().front().pipeline_version, 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, DroppedChangeStaysDroppedAfterARestart) {
  declare();
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  ASSERT_TRUE(service_->rollback(self_, "p", 1, to_step({0, 9}), nullptr));
  restart();
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(service_->history(self_, "p")->size(), 1U);
  ASSERT_EQ(phases().size(), 1U);
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, DroppedChangeTakesBackItsVersionAlone) {
  declare();
  ASSERT_TRUE(service_->apply(self_, request(6), nullptr));
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  ASSERT_EQ(version(), 3U);
  ASSERT_TRUE(service_->rollback(self_, "p", 1, to_step({0, 9}), nullptr));
  EXPECT_EQ(version(), 2U) << "as before the change";
  EXPECT_EQ(service_->history(self_, "p")->size(), 2U);
  EXPECT_EQ(phases().size(), 1U);
}

TEST_F(SwapTest, DroppedChangeLeavesAVersionAppliedForNewJobs) {
  declare();
  ASSERT_TRUE(service_->apply(self_, request(8), nullptr));
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  const auto back = service_->rollback(self_, "p", 1, to_step({0, 9}), nullptr);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_TRUE(back->unchanged);
  EXPECT_EQ(back->repeats, 0U);
  EXPECT_EQ(version(), 2U);
  EXPECT_EQ(service_->history(self_, "p")->size(), 2U);
  EXPECT_EQ(phases().size(), 1U);
}

TEST_F(SwapTest, DroppedChangeLeavesAVersionThatAnotherJobHas) {
  declare("j");
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  declare("k");
  ASSERT_TRUE(service_->rollback(self_, "p", 1, to_step({0, 9}), nullptr));
  EXPECT_EQ(phases().size(), 1U);
  EXPECT_EQ(version(), 2U);
  EXPECT_EQ(service_->job(self_, "k", "")->phases.front().pipeline_version, 2U);
}

TEST_F(SwapTest, DroppedChangeLeavesEverythingWhenNothingCanBeWritten) {
  declare();
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  run_sql("DROP TABLE pipelines");
  const auto back = service_->rollback(self_, "p", 1, to_step({0, 9}), nullptr);
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message(), HasSubstr("pipeline 'p' and its jobs stay as they are"));
  EXPECT_EQ(version(), 2U);
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, DroppedChangeIsPlannedWithoutATrialBatch) {
  declare();
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  const auto drops = [&](job::StepAt at) {
    const auto built = catalogue_->build(catalogue_->owner_for(self_.uid), request(4), nullptr);
    const auto planned = sessions_->plan_swaps(self_, *catalogue_->numbered(self_.uid, *built),
                                               to_step(at), nullptr);
    return planned->front().drops();
  };
  EXPECT_TRUE(drops({0, 9}));
  EXPECT_FALSE(drops({0, 10}));
}

TEST_F(SwapTest, RollbackCountsStepsByTheBatchesThatAreThere) {
  declare();
  swap_to_batches_of_four({0, 8});  // twenty-four rows are left: six steps
  SwapRequest back = to_step({0, 15});
  back.allow_schema_change = true;
  const auto refused = service_->rollback(self_, "p", 1, back, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("epoch 0 has 14 steps; there is no step 15"));
  back.at.step = {0, 14};
  ASSERT_TRUE(service_->rollback(self_, "p", 1, back, nullptr));
  EXPECT_EQ(phases().back().from, (job::StepAt{1, 0}));
}

TEST_F(SwapTest, RollbackTakesAStepThatOnlySmallerBatchesHave) {
  job::ApplyRequest larger = request(4);
  larger.yaml.replace(larger.yaml.find("size: 2"), 7, "size: 4");
  ASSERT_TRUE(service_->apply(self_, larger, nullptr));
  declare();
  SwapRequest allowed = to_step({0, 5});
  allowed.allow_schema_change = true;
  ASSERT_TRUE(service_->swap(self_, request(4), allowed, nullptr));
  allowed.at.step = {0, 12};  // of fifteen steps; ten without the change
  const auto back = service_->rollback(self_, "p", 2, allowed, nullptr);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(phases().back().from, (job::StepAt{0, 12}));
}

TEST_F(SwapTest, RollbackBehindAPlannedStepChangesBackThere) {
  declare();
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  const auto back = service_->rollback(self_, "p", 1, to_step({0, 15}), nullptr);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_FALSE(back->jobs.front().runs);
  ASSERT_EQ(phases().size(), 3U);
  EXPECT_EQ(phases().back().from, (job::StepAt{0, 15}));
  EXPECT_EQ(phases().back().pipeline_version, 3U);
}

TEST_F(SwapTest, ReplicaThatDiedDuringAnAbortedSwapGoesOn) {
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
  sessions_->abort_swaps(*prepared);
  read_up_to(stays, 12);
  const Rank back = come(1, 9);
  EXPECT_EQ(back.batch().step, 9U);
}

}  // namespace
}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

// One job on a pipeline of forty small files in batches of two: twenty steps.
class SwapTest : public SessionsTest {
 protected:
  void SetUp() override {
    for (int i = 10; i < 40; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    SessionsTest::SetUp();
  }
  void restart() {
    stop();
    start();
    service_->restore();
  }

  // Versions differ in what a row may take, which nothing that a rank sees does.
  job::ApplyRequest request(int max_kib) const {
    job::ApplyRequest request;
    request.yaml = yaml("p", "drop");
    request.yaml.replace(request.yaml.find("4KiB"), 4, std::to_string(max_kib) + "KiB");
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
  // Another order: it can change at an epoch's start only.
  job::ApplyRequest shuffled() const {
    job::ApplyRequest request = this->request(4);
    request.yaml += "shuffle: global\n";
    return request;
  }
  void declare(const std::string& name = "j", std::uint32_t num_shards = 1) {
    JobRequest job;
    job.job = name;
    job.pipeline = "p";
    job.num_shards = num_shards;
    ASSERT_TRUE(service_->create_job(self_, job, nullptr));
  }
  static Wish wish(std::optional<std::uint32_t> shard = {}) {
    return {.job = "j", .shard = shard, .credits = 2};
  }
  Rank attach() { return SessionsTest::attach(wish()); }
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
  // Reads all that it is sent before this turn.
  void read_before(Loop& loop, job::Turn turn) {
    while (loop.wish.in_run.turn < turn && !HasFailure()) step(loop);
  }
  // A rank that could have a batch and gets none is told this.
  std::string why_it_waits(const Rank& rank) {
    std::string text;
    sessions_->heartbeat();
    rank.next<wire::ProgressFrame>(wire::FrameType::kProgress, &text);
    return text;
  }
  std::uint32_t next_version(const Rank& rank) {
    return rank.next<wire::SchemaFrame>(wire::FrameType::kSchema).pipeline_version;
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
  static SwapRequest now() { return {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}; }
  // From which turn on the record has the job changed.
  static job::Turn changed_from(const std::vector<store::StoredJob>& records) {
    const job::ScheduleRecord& schedule = records.front().schedule;
    return schedule.planned ? schedule.planned->from : schedule.edits.back().turn;
  }
  std::vector<job::PhaseView> phases() { return service_->job(self_, "j", "")->phases; }
  std::uint32_t version() { return service_->pipeline(self_, "p")->version; }
};

TEST_F(SwapTest, RankWaitsAtTheChangeUntilItIsOnDisk) {
  Loop loop = open(wish());
  read(loop, 1);
  const auto write = [&](const std::vector<store::StoredJob>& records) {
    read_before(loop, changed_from(records));
    EXPECT_THAT(why_it_waits(loop.rank), HasSubstr("is not on disk yet"));
    EXPECT_EQ(phases().size(), 1U);
    return Status();
  };
  ASSERT_TRUE(swap_by(write, request(8), to_step({0, 15})).ok());
  read_before(loop, 15);
  EXPECT_EQ(next_version(loop.rank), 2U);
  EXPECT_EQ(step(loop).step, 15U);
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, RankGoesOnAsItWasWhenTheChangeIsNotWritten) {
  for (const SwapRequest& at : {to_step({0, 15}), now()}) {
    Loop loop = open(wish());
    read(loop, 1);
    const auto write = [&](const std::vector<store::StoredJob>& records) {
      read_before(loop, changed_from(records));
      return Status(Code::kUnavailable, "no disk");
    };
    EXPECT_EQ(swap_by(write, request(8), at).message(), "no disk");
    EXPECT_EQ(phases().size(), 1U);
    read_before(loop, 20);
    EXPECT_EQ(*loop.wish.cursor,
              (delivery::StreamPosition{.epoch = 0, .position = 40, .step = 20}));
    sessions_->detach(*loop.rank.connection);
    kill(loop);
  }
}

TEST_F(SwapTest, RankThatComesWhileTheChangeIsWrittenWaitsForIt) {
  declare();
  Rank rank;
  const auto write = [&](const std::vector<store::StoredJob>&) {
    rank = attach();
    std::string why;
    rank.next<wire::ProgressFrame>(wire::FrameType::kProgress, &why);
    EXPECT_THAT(why, HasSubstr("its job is being changed, and that is not on disk yet"));
    return Status();
  };
  ASSERT_TRUE(swap_by(write, request(8), to_step({0, 2})).ok());
  read_up_to(rank, 1);
  EXPECT_EQ(next_version(rank), 2U);
}

TEST_F(SwapTest, JobChangesThoughItsRanksHaveAllLeftMeanwhile) {
  Loop loop = open(wish());
  read(loop, 4);
  const auto write = [&](const std::vector<store::StoredJob>& records) {
    kill(loop);
    return store_->put_jobs(records);
  };
  ASSERT_TRUE(swap_by(write, request(8), to_step({0, 15})).ok());
  EXPECT_TRUE(sessions_->reports().jobs(self_).empty()) << "it has ended";
  loop = open(Wish(loop.wish));
  read_before(loop, 15);
  EXPECT_EQ(next_version(loop.rank), 2U);
  EXPECT_EQ(phases().size(), 2U);
}

TEST_F(SwapTest, NewerIncarnationWaitsUntilTheChangeIsOnDisk) {
  Loop older = open(wish());
  read(older, 4);
  Rank newer;
  const auto write = [&](const std::vector<store::StoredJob>&) {
    Wish restarted = wish();
    restarted.incarnation = 1;
    newer = SessionsTest::attach(restarted);
    newer.next<wire::ProgressFrame>(wire::FrameType::kProgress);
    return Status();
  };
  ASSERT_TRUE(swap_by(write, request(8), to_step({0, 15})).ok());
  EXPECT_EQ(newer.batch().step, 0U);
  EXPECT_EQ(older.rank.next<wire::ByeFrame>(wire::FrameType::kBye).reason,
            wire::ByeReason::kEvicted);
}

TEST_F(SwapTest, PlannedChangeGetsItsTurnWhenTheFirstRankComesToItsPlace) {
  declare("j", 2);
  Loop first = open(wish(0));
  Loop other = open(wish(1));
  read(first, 2);
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 8}), nullptr));
  const auto schedule = [&] {
    return (**store_->job({.uid = self_.uid, .job = "j", .pipeline = "p"})).schedule;
  };
  // One loop is there by a seek, where the other one is before the place.
  read_before(first, schedule().planned->from);
  go_to_epoch(first, 3);
  EXPECT_EQ(at(step(first)), (job::StepAt{3, 0}));
  ASSERT_EQ(schedule().planned, std::nullopt);
  const job::Turn turn = schedule().edits.back().turn;
  read_before(other, turn);
  EXPECT_EQ(next_version(other.rank), 2U) << "from the same turn on, wherever it is";
  EXPECT_EQ(step(other).step, turn);
}

TEST_F(SwapTest, PlannedChangeOutlivesTheDaemon) {
  declare();
  Loop loop = open(wish());
  read(loop, 2);
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 15}), nullptr));
  sessions_->suspend();
  restart();
  loop = reconnect(loop);
  read_before(loop, 15);
  EXPECT_EQ(next_version(loop.rank), 2U);
}

TEST_F(SwapTest, PlannedChangeComesToItsPlaceThoughARankIsNotBackByThen) {
  declare("j", 2);
  Loop first = open(wish(0));
  Loop other = open(wish(1));
  read(first, 1);
  read(other, 1);
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 8}), nullptr));
  sessions_->suspend();
  restart();
  first = reconnect(first);
  read_before(first, 8);
  EXPECT_EQ(next_version(first.rank), 2U);
  EXPECT_EQ(at(step(first)), (job::StepAt{0, 8}));
  other = reconnect(other);
  read_before(other, 8);
  EXPECT_EQ(next_version(other.rank), 2U);
}

TEST_F(SwapTest, AnotherOrderBeginsWithTheNextEpoch) {
  Loop loop = open(wish());
  read(loop, 2);
  const auto refused = service_->swap(self_, shuffled(), now(), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("can change at an epoch's start only"));
  ASSERT_TRUE(service_->swap(self_, shuffled(),
                             {.job = "j", .at = {.kind = SwapAt::Kind::kNextEpoch, .step = {}}},
                             nullptr));
  const auto record = **store_->job({.uid = self_.uid, .job = "j", .pipeline = "p"});
  read_before(loop, record.schedule.planned->from);
  // As a client gives back what its loop has left.
  loop.rank.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*loop.rank.connection, batch.lease);
  };
  go_to_epoch(loop, 0);
  EXPECT_EQ(next_version(loop.rank), 2U) << "by whatever way the loop comes to one";
  EXPECT_EQ(at(step(loop)), (job::StepAt{0, 0}));
}

TEST_F(SwapTest, KeepsTheNameOfWhatWasTunedWhenTheJobIsDealtAnew) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  job::ApplyRequest tuned = request(4);
  tuned.yaml.replace(tuned.yaml.find("- fetch"), 7, "- fetch: {concurrency: 3}");
  const auto done = service_->swap(self_, tuned, now(), nullptr);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_TRUE(done->jobs.front().tuned);
  ASSERT_TRUE(service_->skip(self_, "j", "", 1));
  for (const job::PhaseView& phase : phases()) EXPECT_EQ(phase.pipeline_version, 2U);
  EXPECT_TRUE(service_->swap(self_, request(8), now(), nullptr));
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
  ASSERT_TRUE(service_->tune_job(self_, "j", "", {.set = {{"memory", std::to_string(used + 1)}}}));
  const auto done = service_->swap(self_, request(8), now(), nullptr);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, PutsOffWhatLiesAheadOnceThatIsOnDisk) {
  for (const bool written : {false, true}) {
    Loop loop = open(wish());
    ASSERT_TRUE(service_->swap(self_, request(8), to_step({2, 9}), nullptr));
    const std::uint32_t later = version();
    const auto write = [&](const std::vector<store::StoredJob>&) {
      return written ? Status() : Status(Code::kUnavailable, "no disk");
    };
    EXPECT_EQ(swap_by(write, request(8), to_step({2, 15})).ok(), written);
    const std::uint64_t place = written ? 15 : 9;
    ASSERT_EQ(phases().size(), 2U);
    EXPECT_EQ(phases().back().from, (job::StepAt{2, place}));
    read_before(loop, 40 + place);
    EXPECT_EQ(next_version(loop.rank), later);
    EXPECT_EQ(step(loop).step, place);
    ASSERT_TRUE(service_->delete_job(self_, "j", ""));
    kill(loop);
    ASSERT_TRUE(service_->rollback(self_, "p", 1, std::nullopt, nullptr));
  }
}

TEST_F(SwapTest, LeavesEverythingAsItIsWhenNothingCanBeWritten) {
  const Rank rank = attach();
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 3));
  run_sql("DROP TABLE revisions");
  const auto swapped = service_->swap(self_, request(8), now(), nullptr);
  ASSERT_FALSE(swapped);
  EXPECT_THAT(swapped.error().message(), HasSubstr("pipeline 'p' and its jobs stay as they are"));
  EXPECT_EQ(version(), 1U);
  EXPECT_EQ(phases().size(), 1U);
  ASSERT_NO_FATAL_FAILURE(read_up_to(rank, 19));
}

TEST_F(SwapTest, TellsAConsumerThatItsApplyIsUnderWay) {
  ASSERT_TRUE(service_->apply(self_, limited(), nullptr));
  const Rank rank = attach();
  rank.batch();
  {
    const MutexLock the_disk_is_slow(sessions_->table().records());
    sessions_->apply(*rank.connection,
                     {.serial = 7, .at = wire::ApplyAt::kNow, .vars = {{"limit", "6KiB"}}});
    EXPECT_THAT(why_it_waits(rank), HasSubstr("the change of the pipeline is being prepared"));
  }
  EXPECT_EQ(rank.next<wire::AppliedFrame>(wire::FrameType::kApplied).serial, 7U);
}

TEST_F(SwapTest, RefusesAnApplyOfAVariableThatThereIsNot) {
  const Rank rank = attach();
  rank.batch();
  sessions_->apply(*rank.connection,
                   {.serial = 7, .at = wire::ApplyAt::kNow, .vars = {{"nobody", "1"}}});
  std::string answer;
  EXPECT_EQ(rank.next<wire::RefusedFrame>(wire::FrameType::kRefused, &answer).serial, 7U);
  EXPECT_THAT(answer, HasSubstr("nobody"));
}

TEST_F(SwapTest, HasARankAskAgainWhileAnotherIsYetToComeThatMayBeginBefore) {
  ASSERT_TRUE(service_->apply(self_, limited(), nullptr));
  declare("j", 2);
  Loop loop = open(wish(0));
  read(loop, 9);
  const auto apply = [&] {
    sessions_->apply(
        *loop.rank.connection,
        {.serial = 1, .at = wire::ApplyAt::kStep, .step = 5, .vars = {{"limit", "6KiB"}}});
    return loop.rank.next<wire::RefusedFrame>(wire::FrameType::kRefused).code;
  };
  EXPECT_EQ(apply(), static_cast<std::uint32_t>(Code::kUnavailable));
  const Loop other = open(wish(1));
  EXPECT_EQ(apply(), static_cast<std::uint32_t>(Code::kOutOfRange)) << "it has passed";
}

TEST_F(SwapTest, EndsAConsumerThatAsksAgainAndAgainWithoutAnAnswer) {
  const Rank rank = attach();
  rank.batch();
  const MutexLock the_disk_is_slow(sessions_->table().records());
  for (int i = 0; i < 5; ++i) sessions_->apply(*rank.connection, {});
  EXPECT_TRUE(rank.connection->ending());
}

TEST_F(SwapTest, GoesByWhatARankHasSaidThoughAnOperatorHadSaidTheSameBefore) {
  ASSERT_TRUE(service_->apply(self_, limited("a"), nullptr));
  const Rank rank = attach();
  rank.attached();
  job::ApplyRequest given = limited("a");
  given.vars = {{"limit", "6KiB"}};
  ASSERT_TRUE(service_->swap(self_, given, now(), nullptr));
  sessions_->apply(*rank.connection,
                   {.serial = 1, .at = wire::ApplyAt::kNow, .vars = {{"limit", "6KiB"}}});
  rank.next<wire::AppliedFrame>(wire::FrameType::kApplied);
  ASSERT_TRUE(service_->swap(self_, limited("b"), now(), nullptr));
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

TEST_F(SwapTest, OperatorsSwapBehindASeekIsOfThePlacesThere) {
  Loop loop = open(wish());
  read(loop, 1);
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {2, 0}));
  const auto passed = service_->swap(self_, request(8), to_step({1, 0}), nullptr);
  ASSERT_FALSE(passed);
  EXPECT_THAT(passed.error().message(), HasSubstr("has passed epoch 1, step 0"));
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({3, 0}), nullptr));
  while (loop.wish.cursor->epoch < 2 || loop.wish.cursor->step < 19) step(loop);
  step(loop);
  EXPECT_EQ(next_version(loop.rank), 2U);
  EXPECT_EQ(at(step(loop)), (job::StepAt{3, 0}));
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
  const auto built =
      catalogue_->build(catalogue_->table().owner_for(self_.uid), request(4), nullptr);
  const auto planned = sessions_->planner().plan(
      self_, *catalogue_->table().numbered(self_.uid, *built), to_step({0, 9}), nullptr);
  EXPECT_TRUE(planned->front().drops());
}

TEST_F(SwapTest, RollbackBehindAPlannedStepOnlyDropsTheChangeToo) {
  declare();
  ASSERT_TRUE(service_->swap(self_, request(8), to_step({0, 9}), nullptr));
  const auto back = service_->rollback(self_, "p", 1, to_step({0, 15}), nullptr);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_TRUE(back->jobs.front().runs);
  EXPECT_EQ(phases().size(), 1U);
}

TEST_F(SwapTest, ReplicaThatDiedDuringAChangeThatIsNotWrittenGoesOn) {
  const auto replica = [](std::uint32_t number) {
    return Wish{
        .job = "j", .shard = 0, .num_shards = 1, .replicas = 2, .replica = number, .credits = 2};
  };
  Loop stays = open(replica(0));
  Loop killed = open(replica(1));
  const auto write = [&](const std::vector<store::StoredJob>& records) {
    std::thread other([&] { read_before(killed, changed_from(records)); });
    read_before(stays, changed_from(records));
    other.join();
    kill(killed);
    return Status(Code::kUnavailable, "no disk");
  };
  EXPECT_FALSE(swap_by(write, request(8), now()).ok());
  const job::Turn turn = killed.wish.in_run.turn;
  read(stays, 2);
  killed = reconnect(killed);
  EXPECT_EQ(step(killed).step, turn);
}

}  // namespace
}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// One job on a pipeline of forty small files in batches of two: twenty steps an epoch of one shard.
class HeadspaceTest : public SessionsTest {
 protected:
  using Measured = Result<HeadspaceView>;
  static constexpr std::uint32_t kSteps = 20;

  void SetUp() override {
    for (int i = 10; i < 40; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    SessionsTest::SetUp();
  }
  Loop open_one() { return open({.job = "j", .shard = 0, .num_shards = 1}); }
  std::vector<Loop> open_ranks(std::uint32_t ranks) {
    std::vector<Loop> loops;
    for (std::uint32_t shard = 0; shard < ranks; ++shard)
      loops.push_back(open({.job = "j", .shard = shard, .num_shards = ranks}));
    return loops;
  }
  std::shared_ptr<Consumer> consumer(const Loop& loop) {
    const SessionPtr session = sessions_->table().find(loop.rank.connection->id());
    MutexLock lock(sessions_->table().mutex());
    return session->consumer;
  }
  Measured measure(std::uint32_t steps = kSteps, const Service::Progress& progress = nullptr) {
    return service_->headspace(self_, "j", "", steps,
                               [&](auto done, auto total, const auto& what, const auto& runners) {
                                 return progress == nullptr || progress(done, total, what, runners);
                               });
  }
  // Measured by another thread, which calls `at` once, when ranks train with their data ready.
  std::future<Measured> measure_and(std::function<void()> at, std::uint32_t steps = 1000) {
    return std::async(std::launch::async, [this, at = std::move(at), steps] {
      bool called = false;
      return measure(steps, [&](auto, auto, const std::string& what, const auto&) {
        if (!called && what.find("data ready") != std::string::npos) {
          called = true;
          at();
        }
        return true;
      });
    });
  }
  // Reads on until the measurement is over.
  Measured read_until(std::future<Measured>& measured, std::vector<Loop>& loops) {
    while (measured.wait_for(std::chrono::seconds(0)) != std::future_status::ready &&
           !HasFailure()) {
      for (Loop& loop : loops) step(loop);
    }
    return measured.get();
  }
  std::uint64_t arena_bytes() { return service_->job(self_, "j", "")->arena_bytes; }
  void set_memory(std::uint64_t bytes) {
    ASSERT_TRUE(service_->tune_job(self_, "j", "", {.set = {{"memory", std::to_string(bytes)}}}));
  }
  // Once what was begun has been read, all is as it was before.
  void expect_as_before(Loop& loop) {
    for (int i = 0; i < 100'000 && consumer(loop)->view().credits != 4 && !HasFailure(); ++i)
      step(loop);
    EXPECT_EQ(consumer(loop)->view().credits, 4U);
    EXPECT_FALSE(service_->job(self_, "j", "")->limits.prefetch);
  }
};

TEST_F(HeadspaceTest, GateStopsALoopBeforeBatchesThatLieReady) {
  Loop loop = open_one();
  const auto held = consumer(loop);
  held->time(clock_);
  held->gate(6);
  EXPECT_EQ(read(loop, 6), (job::StepAt{0, 5}));
  EXPECT_THAT(held->waits_for(), HasSubstr("'spdlctl headspace' holds all ranks"));
  while (held->take_timed().ready < 4) std::this_thread::yield();
  EXPECT_EQ(held->take_timed().turn, 6U);
  held->gate(8);
  EXPECT_EQ(read(loop, 2), (job::StepAt{0, 7}));
  EXPECT_EQ(held->take_timed().turn, 8U);
  held->end_timing();
  EXPECT_EQ(read(loop, 40), (job::StepAt{2, 7}));
  EXPECT_EQ(held->waits_for(), "");
}

TEST_F(HeadspaceTest, NoBatchIsMadeWhileStreamsAreHeld) {
  Loop loop = open_one();
  const auto held = consumer(loop);
  held->time(clock_);
  held->gate(4);
  read(loop, 4);
  while (held->take_timed().ready < 4) std::this_thread::yield();
  ASSERT_TRUE(held->hold_streams());
  Consumer::Timed seen = held->take_timed();
  while (seen.making) seen = held->take_timed();
  held->gate(job::kNoTurn);
  read(loop, seen.ready);
  EXPECT_EQ(held->take_timed().ready, 0U);
  EXPECT_FALSE(held->take_timed().making);
  held->release_streams();
  read(loop, 20);
}

TEST_F(HeadspaceTest, NotesEachBatchThatIsGivenBackWithItsEpoch) {
  Loop loop = open_one();
  consumer(loop)->time(clock_);
  read(loop, 25);
  const auto given = consumer(loop)->take_timed().given;
  ASSERT_EQ(given.size(), 25U);
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_EQ(given[i].epoch, i / 20);
  EXPECT_TRUE(consumer(loop)->take_timed().given.empty()) << "they are told once";
}

TEST_F(HeadspaceTest, TimedStepsLeaveAllAsItWas) {
  std::vector<Loop> loops = open_ranks(2);
  auto measured = std::async(std::launch::async, [&] { return measure(); });
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "");
  EXPECT_EQ(found->warning, "");
  EXPECT_EQ(found->ranks, 2U);
  EXPECT_EQ(found->prefetch, kSteps + 3);
  EXPECT_GE(found->steps_now, kSteps);
  EXPECT_GE(found->steps_ready, kSteps);
  EXPECT_GE(found->rounds, 1U);
  EXPECT_EQ(found->steps_per_epoch, 10U);
  EXPECT_TRUE(found->gain());
  for (Loop& loop : loops) expect_as_before(loop);
}

TEST_F(HeadspaceTest, ReplicasOfAShardAreHeldAndTimedTogether) {
  std::vector<Loop> loops;
  for (std::uint32_t replica = 0; replica < 2; ++replica)
    loops.push_back(open({.job = "j",
                          .shard = 0,
                          .num_shards = 1,
                          .replicas = 2,
                          .replica = replica,
                          .pid = static_cast<pid_t>(4'000'000 + replica)}));
  auto measured = std::async(std::launch::async, [&] { return measure(); });
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "");
  EXPECT_EQ(found->ranks, 2U);
  EXPECT_GE(found->steps_ready, kSteps);
  for (int i = 0; i < 80; ++i) EXPECT_EQ(at(step(loops[0])), at(step(loops[1])));
  EXPECT_EQ(consumer(loops[0])->view().credits, 4U);
}

TEST_F(HeadspaceTest, RanksAreToldBeforeTheyWait) {
  std::vector<Loop> loops = open_ranks(1);
  auto measured = std::async(std::launch::async, [&] { return measure(); });
  std::string text;
  Loop& loop = loops.front();
  loop.rank.passed = [&](const wire::BatchFrame& batch) {
    loop.wish.in_run.turn = batch.turn + 1;
    sessions_->release(*loop.rank.connection, batch.lease);
  };
  (void)loop.rank.next<wire::NoticeFrame>(wire::FrameType::kNotice, &text);
  EXPECT_THAT(text, StartsWith("'spdlctl headspace' measures"));
  EXPECT_TRUE(read_until(measured, loops));
}

TEST_F(HeadspaceTest, FewerSlotsAreTriedWhereNotAllFit) {
  std::vector<Loop> loops = open_ranks(1);
  set_memory(5 * arena_bytes());  // old slots, room for as many, and new ones
  auto measured = std::async(std::launch::async, [&] { return measure(100); });
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->prefetch, 16U);
  EXPECT_GT(found->rounds, 6U);
  EXPECT_EQ(found->warning, "");
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, SlotsShrinkBackWhileTheLoopKeepsAnOldBatch) {
  std::vector<Loop> loops = open_ranks(1);
  set_memory(4 * arena_bytes());  // 16 batches fit beside the old slots, but not the way back
  (void)loops.front().rank.batch();
  ++loops.front().wish.in_run.turn;
  auto measured = std::async(std::launch::async, [&] {
    return measure(100, [](auto, auto, const std::string& what, const auto&) {
      return what.find("data ready") == std::string::npos;
    });
  });
  const Measured found = read_until(measured, loops);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kCancelled);
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, SlotsThatCannotShrinkBackAreTriedAgain) {
  std::vector<Loop> loops = open_ranks(1);
  auto measured = measure_and([&] { set_memory(4096); }, kSteps);
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "");
  EXPECT_THAT(found->warning, StartsWith("its ranks have more batches ahead than before: "));
  EXPECT_THAT(measure().error().message(), HasSubstr("cannot be measured again: its ranks have"));
  sessions_->tick();
  read(loops.front(), 100);
  EXPECT_EQ(consumer(loops.front())->view().credits, kSteps + 3);
  set_memory(std::uint64_t{1} << 30);
  while (consumer(loops.front())->view().credits != 4) {
    sessions_->tick();
    step(loops.front());
  }
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, SlotsShrinkBackOnABrokenDisk) {
  std::vector<Loop> loops = open_ranks(1);
  std::atomic<bool> in_round = false;
  auto measured = measure_and([&] { in_round = true; });
  while (!in_round) step(loops.front());
  run_sql("DROP TABLE jobs");
  go_to_epoch(loops.front(), 100);
  const Measured found = measured.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_THAT(found->ended_by, HasSubstr("was led elsewhere by its loop"));
  EXPECT_EQ(found->warning, "");
  const SessionPtr session = sessions_->table().find(loops.front().rank.connection->id());
  const MutexLock lock(sessions_->table().mutex());
  EXPECT_TRUE(has_prefetch(*session->job->state.plan, 0));
}

TEST_F(HeadspaceTest, ResettingPrefetchBringsTheOldSlotsBack) {
  std::vector<Loop> loops = open_ranks(1);
  auto measured = measure_and([&] { set_memory(4096); }, kSteps);
  ASSERT_TRUE(read_until(measured, loops));
  set_memory(std::uint64_t{1} << 30);
  read(loops.front(), 100);
  EXPECT_EQ(consumer(loops.front())->view().credits, kSteps + 3);
  ASSERT_TRUE(service_->tune_job(self_, "j", "", {.reset = {"prefetch"}}));
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, SlotsLeaveRoomInTheBudgetForOthers) {
  std::vector<Loop> loops = open_ranks(1);
  const delivery::ArenaShape old = consumer(loops.front())->slots().front()->arena().shape();
  delivery::ArenaShape grown = old;
  grown.slot_count += 32 - 4;
  // They fit beside room for the old ones, but then not another job's.
  const std::uint64_t room = delivery::arena_bytes(grown) + delivery::arena_bytes(old) * 3 / 2;
  delivery::ArenaShape rest{.kind = old.kind, .slot_bytes = 4096, .slot_count = 1};
  rest.slot_bytes +=
      (budget_.limit_bytes() - budget_.used_bytes() - room - delivery::arena_bytes(rest)) / 4096 *
      4096;
  const auto taken = arenas_.take(rest, self_.uid);
  ASSERT_TRUE(taken) << taken.error().message();
  bool has_room = false;
  auto measured =
      measure_and([&] { has_room = arenas_.take(old, self_.uid + 1).has_value(); }, 100);
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_TRUE(has_room);
  EXPECT_EQ(found->prefetch, 16U);
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, IsRefusedWithNumbersWhereFewerThanEightBatchesFit) {
  std::vector<Loop> loops = open_ranks(1);
  set_memory(arena_bytes() + 4096);
  auto measured = std::async(std::launch::async, [&] { return measure(); });
  const Measured refused = read_until(measured, loops);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("job 'j' cannot be measured: fewer than 8 batches fit for each rank"));
  EXPECT_THAT(refused.error().message(), HasSubstr("does not fit: the job has"));
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, IsRefusedWhereItHoldsUpOthersOrTimesNothing) {
  const auto refusal = [&](std::uint32_t steps = kSteps) {
    const Measured measured = measure(steps);
    EXPECT_FALSE(measured);
    return measured ? std::string() : measured.error().message();
  };
  EXPECT_THAT(refusal(), HasSubstr("there is no job 'j'"));
  JobRequest request = declared(0);
  request.num_shards = 2;
  request.epochs = job::EpochMode::kManual;
  ASSERT_TRUE(service_->create_job(self_, request, nullptr));
  EXPECT_THAT(refusal(), HasSubstr("no rank is attached"));
  Loop first = open({.job = "j", .shard = 0});
  EXPECT_THAT(refusal(), HasSubstr("1 of its 2 ranks are attached to this daemon"));
  Loop second = open({.job = "j", .shard = 1});
  EXPECT_THAT(refusal(), HasSubstr("left of the epochs that are open, and 48 steps are needed"));
  EXPECT_THAT(refusal(7), HasSubstr("7 steps cannot be timed: it may be 8 to 1000"));
  EXPECT_THAT(refusal(1001), HasSubstr("it may be 8 to 1000"));
  const job::Caller other{{.uid = self_.uid + 1, .gid = self_.gid}, 1};
  EXPECT_EQ(service_->headspace(other, "j", "", kSteps, nullptr).error().code(), Code::kNotFound);
}

TEST_F(HeadspaceTest, IsRefusedWhereEpochsHaveOneStep) {
  std::string text = yaml("one", "drop");
  text.replace(text.find("size: 2"), 7, "size: 40");
  text.replace(text.find("4KiB"), 4, "64KiB");
  apply(text);
  Loop loop = open({.pipeline = "one", .job = "j", .shard = 0, .num_shards = 1});
  const Measured refused = measure();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("its epochs have one step"));
}

TEST_F(HeadspaceTest, IsRefusedWhereAnotherJobReadsTheSameBatches) {
  Loop loop = open_one();
  Loop other = open({.job = "other", .shard = 0, .num_shards = 1});
  const Measured refused = measure();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("another job reads the same batches"));
  kill(other);
  EXPECT_FALSE(consumer(loop)->shares_stream());
}

TEST_F(HeadspaceTest, JobThatComesToShareBatchesEndsIt) {
  std::vector<Loop> loops = open_ranks(1);
  std::atomic<bool> begun = false;
  auto measured = std::async(
      std::launch::async, [&] { return measure(kSteps, [&](auto...) { return begun = true; }); });
  while (!begun) std::this_thread::yield();
  loops.push_back(open({.job = "other", .shard = 0, .num_shards = 1}));
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "another job reads the same batches");
}

TEST_F(HeadspaceTest, SwapInARoundEndsItAndLosesNoBatch) {
  std::vector<Loop> loops = open_ranks(2);
  auto measured = measure_and([&] {
    job::ApplyRequest request;
    request.yaml = yaml("p", "drop");
    request.yaml.replace(request.yaml.find("4KiB"), 4, "8KiB");
    request.file = "-";
    const auto swapped = service_->swap(
        self_, request, {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
    EXPECT_TRUE(swapped) << swapped.error().message();
  });
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "the job was changed");
  for (Loop& loop : loops) expect_as_before(loop);
}

TEST_F(HeadspaceTest, RankThatDiesEndsItAndOthersGoOn) {
  std::vector<Loop> loops = open_ranks(2);
  std::atomic<bool> in_round = false;
  auto measured = measure_and([&] { in_round = true; });
  while (!in_round) {
    for (Loop& loop : loops) step(loop);
  }
  kill(loops.back());
  loops.pop_back();
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "a rank has left, or come");
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, LoopThatSeeksEndsItsRound) {
  std::vector<Loop> loops = open_ranks(1);
  std::atomic<bool> in_round = false;
  auto measured = measure_and([&] { in_round = true; });
  while (!in_round) step(loops.front());
  go_to_epoch(loops.front(), 100);
  const Measured found = read_until(measured, loops);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_THAT(found->ended_by, HasSubstr("was led elsewhere by its loop"));
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, CallerThatGoesLeavesRanksAsTheyWere) {
  std::vector<Loop> loops = open_ranks(1);
  auto measured = std::async(std::launch::async, [&] {
    return measure(1000, [](auto, auto, const std::string& what, const auto&) {
      return what.find("holds the ranks") == std::string::npos;
    });
  });
  const Measured found = read_until(measured, loops);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kCancelled);
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, RankThatStandsStillInARoundEndsIt) {
  std::vector<Loop> loops = open_ranks(1);
  std::atomic<bool> in_round = false;
  auto measured = measure_and([&] { in_round = true; });
  while (!in_round) step(loops.front());
  // It reads nothing from now on.
  while (measured.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
    clock_.advance(std::chrono::seconds(1));
  const Measured found = measured.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "shard 0 did not come on for 60 s");
  EXPECT_TRUE(found->now_s);
  expect_as_before(loops.front());
}

TEST_F(HeadspaceTest, RankThatStandsStillEndsItWhileOthersTrain) {
  std::vector<Loop> loops = open_ranks(2);
  auto measured = std::async(std::launch::async, [&] { return measure(1000); });
  // The second one reads nothing.
  while (measured.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    step(loops.front());
    clock_.advance(std::chrono::seconds(1));
  }
  const Measured found = measured.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "shard 1 did not come on for 60 s");
  EXPECT_FALSE(found->now_s);
  for (Loop& loop : loops) expect_as_before(loop);
}

TEST_F(HeadspaceTest, RanksAreHeldForAMinuteAtMost) {
  std::vector<Loop> loops = open_ranks(2);
  std::atomic<bool> in_round = false;
  auto measured = measure_and([&] { in_round = true; });
  while (!in_round) {
    for (Loop& loop : loops) step(loop);
  }
  std::atomic<bool> over = false;
  std::thread quick([&] {
    while (!over && !HasFailure()) step(loops.front());
  });
  while (consumer(loops.front())->waits_for().empty()) std::this_thread::yield();
  // The other one takes ten seconds for a step.
  while (measured.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
    clock_.advance(std::chrono::seconds(10));
    step(loops.back());
  }
  over = true;
  quick.join();
  const Measured found = measured.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->ended_by, "ranks had waited for 60 s until others were through a round");
  EXPECT_GE(found->longest_hold_s, 60);
  for (Loop& loop : loops) expect_as_before(loop);
}

TEST_F(HeadspaceTest, StreamIsFullOnceNoSlotIsFree) {
  Loop loop = open_one();
  const auto held = consumer(loop);
  held->time(clock_);
  held->gate(2);
  const std::array kept = {loop.rank.batch(), loop.rank.batch()};
  while (!held->take_timed().full) std::this_thread::yield();
  while (held->take_timed().making) std::this_thread::yield();
  EXPECT_EQ(held->take_timed().leases, 2U);
  EXPECT_EQ(held->take_timed().ready, 4U) << "of six slots, two are leased";
  ASSERT_TRUE(held->hold_streams());
  sessions_->release(*loop.rank.connection, kept.front().lease);
  EXPECT_FALSE(held->take_timed().full);
}

TEST_F(HeadspaceTest, JobIsMeasuredOnceAtATime) {
  std::vector<Loop> loops = open_ranks(1);
  Measured second = HeadspaceView{};
  auto measured = measure_and([&] { second = measure(); }, kSteps);
  EXPECT_TRUE(read_until(measured, loops));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(), HasSubstr("is being measured"));
}

}  // namespace
}  // namespace spdld::session

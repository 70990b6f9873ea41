// SPDX-License-Identifier: Apache-2.0
#include "session/consumer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/run.h"
#include "spdld/wire.h"
#include "stream/span.h"
#include "tests/support/fake_source.h"
#include "tests/support/judge.h"
#include "tests/support/pipelines.h"
#include "tests/support/received_frame.h"
#include "tests/unit/engine/quiet_port.h"

namespace spdld::session {
namespace {

using spdld::testing::FakeSource;

constexpr std::uint64_t kItems = 40;  // 10 steps of 4
constexpr std::uint32_t kCredits = 2;

// The consumer's end of the socket, as frames.
class ConsumerTest : public ::testing::Test {
 protected:
  explicit ConsumerTest(engine::ExecutorOptions options = {.threads = 2})
      : executor_(std::move(options)) {}
  void SetUp() override {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    socket_ = UniqueFd(sockets[0]);
    connection_ = std::make_shared<delivery::Connection>(
        7, UniqueFd(sockets[1]), Peer{}, std::make_shared<UserBytes>(std::uint64_t{1} << 30),
        [] {});
    auto plan = spdld::testing::compile("  - fetch\n", "batch: {size: 4, max_bytes: 4KiB}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    source_ = std::make_shared<FakeSource>(FakeSource::numbered(kItems));
    broken_ = std::make_shared<FakeSource>(FakeSource::numbered(kItems));
    for (std::uint64_t item = 0; item < kItems; ++item)
      broken_->fail(item, Status(Code::kPermissionDenied, "broken"));
  }

  void TearDown() override {
    if (consumer_ != nullptr) consumer_->end(false);
    executor_.stop();   // a worker that is done with a batch may still hold its stream
    source_->answer();  // for rows that were asked for last; the executor waits for them
  }

  pipeline::PhasePtr make_phase(const std::string& content) { return make_phase(content, source_); }
  pipeline::PhasePtr make_phase(const std::string& content,
                                const std::shared_ptr<FakeSource>& source) {
    auto phase = std::make_shared<pipeline::Phase>();
    phase->items = kItems;
    phase->batch = 4;
    phase->content = content;
    phase->run = std::make_shared<engine::Run>(plan_, source, source::Sampler(kItems, Shuffle{}, 1),
                                               1, engine::RunPool{2}, engine::RunLimits{}, clock_);
    return phase;
  }
  void start(std::uint32_t num_shards = 1, job::StepAt at = {}, std::uint64_t open_epochs = 100,
             bool last_known = false, std::uint32_t shard = 0) {
    ConsumerOptions options = options_of(make_phase("test"), num_shards);
    options.way.shard = shard;
    if (at != job::StepAt()) options.own = {{.turn = 0, .to = at, .position = at.step * 4}};
    options.open_epochs = open_epochs;
    options.last_known = last_known;
    start(std::move(options));
  }
  void start(ConsumerOptions options) {
    plan_of_job_ = options.plan;
    consumer_ = std::make_shared<Consumer>(std::move(options), connection_, streams_);
    ASSERT_TRUE(consumer_->connect().ok());
    consumer_->begin();
  }
  ConsumerOptions options_of(const pipeline::PhasePtr& phase, std::uint32_t num_shards = 1) {
    return {.plan = new_run(phase, {.shards = num_shards}),
            .way = {.credits = kCredits,
                    .job = 1,
                    .meter = std::make_shared<stream::ByteMeter>(),
                    .presence = std::make_shared<stream::ReplicaPresence>()},
            .job = {.host = host_,
                    .judge = std::make_shared<spdld::testing::Judge>(),
                    .gain = std::make_shared<SharingGain>()},
            .open_epochs = 100};
  }
  // The job changes from the turn on that the consumer is held at.
  struct Edited {
    JobPlanPtr plan;
    job::Turn turn = 0;
  };
  template <typename Change>
  Edited edited(Change change) {
    const job::Turn turn = consumer_->hold();
    auto plan = with_edit(*plan_of_job_, {.turn = turn, .change = change}, turn, 0);
    EXPECT_TRUE(plan) << plan.error().message();
    return {.plan = *plan, .turn = turn};
  }
  // Another version in place of the one that it reads.
  Edited swapped(const pipeline::PhasePtr& phase) {
    auto plan = std::make_shared<JobPlan>(*plan_of_job_);
    const std::uint32_t version = plan->schedule.add_version(stream::facts_of(*phase));
    plan->phases[version] = phase;
    plan_of_job_ = plan;
    return edited(job::Edit::Swap{version});
  }
  template <typename Change>
  job::Turn change(Change change) {
    const Edited edit = edited(change);
    EXPECT_TRUE(consumer_->prepare(edit.plan, edit.turn).ok());
    consumer_->commit();
    consumer_->go_on();
    plan_of_job_ = edit.plan;
    return edit.turn;
  }
  // The consumer's loop has been handed `turn` batches, and says this.
  Status go_to(job::Turn turn, std::uint64_t epoch, std::uint32_t serial) {
    return consumer_->seek({.turn = turn, .epoch = epoch, .serial = serial});
  }
  Status skip(job::Turn turn, std::uint32_t steps, std::uint32_t serial) {
    return consumer_->seek({.turn = turn, .skip = steps, .serial = serial});
  }

  // Blocks until a frame of this kind comes; others before it are passed over.
  template <typename Frame>
  Frame next(wire::FrameType type) {
    while (const auto frame = test::receive_frame(socket_.get())) {
      if (frame->type() == wire::FrameType::kBatch)
        held_.push_back(frame->as<wire::BatchFrame>().lease);
      if (frame->type() == type) return frame->as<Frame>();
    }
    ADD_FAILURE() << "hung up instead of frame " << static_cast<int>(type);
    return {};
  }
  wire::BatchFrame next_batch() { return next<wire::BatchFrame>(wire::FrameType::kBatch); }
  // Everything that was received so far.
  void release_all() {
    for (const std::uint64_t lease : held_) consumer_->release(lease);
    held_.clear();
  }
  // The next batch behind the consumer's last seek; all are given back.
  wire::BatchFrame pass(std::uint32_t seek = 0) {
    wire::BatchFrame batch = next_batch();
    for (; batch.seek != seek; batch = next_batch()) release_all();
    release_all();
    return batch;
  }
  bool silent() {
    char byte = 0;
    return recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
  }

  SystemClock clock_;
  delivery::ArenaBudget budget_{std::uint64_t{1} << 30};
  std::shared_ptr<const engine::Plan> plan_;
  std::shared_ptr<FakeSource> source_;
  std::shared_ptr<FakeSource> broken_;  // no batch can be made of it
  delivery::ArenaPool arenas_{budget_, {.bytes = std::uint64_t{1} << 28}, clock_};
  engine::Executor executor_;
  stream::Streams streams_{executor_, arenas_, delivery::ArenaKind::kMemfd, clock_};
  UniqueFd socket_;
  std::vector<std::uint64_t> held_;
  struct Host final : ConsumerHost {
    void asks_for_grant() override { ++asked; }
    void comes_to_planned() override { ++came_to_planned; }
    void comes_to_entry() override { ++came_to_entry; }
    std::atomic<int> asked = 0;
    std::atomic<int> came_to_planned = 0;
    std::atomic<int> came_to_entry = 0;
  };
  const std::shared_ptr<Host> host_ = std::make_shared<Host>();
  JobPlanPtr plan_of_job_;
  std::shared_ptr<delivery::Connection> connection_;
  std::shared_ptr<Consumer> consumer_;
};

TEST_F(ConsumerTest, SendsStepsInOrderAndTheEndOfEachEpoch) {
  start();
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    for (std::uint64_t step = 0; step < 10; ++step) {
      const wire::BatchFrame batch = next_batch();
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batch.step, step);
      EXPECT_EQ(batch.next_position, (step + 1) * 4);
      consumer_->release(batch.lease);
    }
    const auto end = next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd);
    EXPECT_EQ(end.epoch, epoch);
    EXPECT_EQ(end.steps, 10U);
    EXPECT_EQ(end.last, 0U);
  }
}

TEST_F(ConsumerTest, SendsNoMoreThanItsCredits) {
  start();
  next_batch();
  const wire::BatchFrame second = next_batch();
  EXPECT_EQ(consumer_->view().leases, kCredits);
  consumer_->release(second.lease);
  EXPECT_EQ(next_batch().step, 2U);
  EXPECT_EQ(consumer_->view().leases, kCredits);
}

TEST_F(ConsumerTest, CountsAReleaseThatIsRepeatedAndGivesNoCreditForIt) {
  start();
  const wire::BatchFrame first = next_batch();
  next_batch();
  consumer_->release(first.lease);
  consumer_->release(first.lease);
  consumer_->release(12345);
  next_batch();
  EXPECT_EQ(consumer_->view().bad_releases, 2U);
  EXPECT_EQ(consumer_->view().leases, kCredits);
}

TEST_F(ConsumerTest, WaitsAtTheEndOfAnEpochThatNobodyHasOpenedTheNextOf) {
  start(1, {}, 1);
  for (int step = 0; step < 10; ++step) consumer_->release(next_batch().lease);
  next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd);
  EXPECT_NE(consumer_->waits_for().find("epoch 1 has not been opened"), std::string::npos);
  EXPECT_TRUE(silent());
  consumer_->open_epochs(2, false);
  EXPECT_EQ(next_batch().epoch, 1U);
}

TEST_F(ConsumerTest, SaysWhichEpochIsTheLast) {
  start(1, {0, 9}, 1, true);
  consumer_->release(next_batch().lease);
  EXPECT_EQ(next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd).last, 1U);
  EXPECT_TRUE(consumer_->waits_for().empty());
}

TEST_F(ConsumerTest, TellsTheEndAtOnceWhenItStartsAtTheEnd) {
  start(1, {0, 10}, 1, true);
  EXPECT_EQ(next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd).epoch, 0U);
}

// Blocks until the time for which the consumer has lacked this grows; returns all such times.
stream::ShortageTime wait_for(const Consumer& consumer, stream::Shortage why) {
  const auto of = static_cast<std::size_t>(why);
  const auto before = consumer.lacked().time[of];
  while (consumer.lacked().time[of] == before) std::this_thread::yield();
  return consumer.lacked().time;
}

TEST_F(ConsumerTest, LacksBytesWhileTheSourceHasTheRowsOfItsNextBatch) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  start();
  wait_for(*consumer_, stream::Shortage::kBytes);
  std::jthread answers([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) source_->answer();
  });
  next_batch();
}

TEST_F(ConsumerTest, KeepsWhatItHasLackedOfAStreamThatItLeaves) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  start(1, {2, 0});
  const auto before = wait_for(*consumer_, stream::Shortage::kBytes);
  ASSERT_TRUE(go_to(0, 0, 1).ok());  // back: it takes another stream
  const auto after = consumer_->lacked().time;
  for (std::size_t why = 0; why < stream::kShortages; ++why) EXPECT_GE(after[why], before[why]);
  std::jthread answers([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) source_->answer();
  });
  next_batch();
}

TEST_F(ConsumerTest, LacksNothingWhileItHasAllBatchesThatItMayHold) {
  start();
  next_batch();
  next_batch();
  const Consumer::Lacked lacked = consumer_->lacked();
  EXPECT_EQ(consumer_->lacked().time, lacked.time);
  release_all();
  next_batch();
  next_batch();
  const Consumer::Lacked later = consumer_->lacked();
  EXPECT_GT(later.attached, lacked.attached);
  EXPECT_LE(std::accumulate(later.time.begin(), later.time.end(), std::chrono::nanoseconds(0)),
            later.attached);
}

TEST_F(ConsumerTest, LacksItsNextEpochUntilThatIsOpened) {
  start(1, {0, 9}, 1);
  consumer_->release(next_batch().lease);
  const auto before = wait_for(*consumer_, stream::Shortage::kEpoch);
  consumer_->open_epochs(2, false);
  next_batch();
  next_batch();
  const auto after = consumer_->lacked().time;
  EXPECT_GE(after[static_cast<std::size_t>(stream::Shortage::kEpoch)],
            before[static_cast<std::size_t>(stream::Shortage::kEpoch)]);
  EXPECT_EQ(consumer_->lacked().time, after);
}

TEST_F(ConsumerTest, LacksNothingBehindItsLastEpoch) {
  start(1, {0, 9}, 1, true);
  consumer_->release(next_batch().lease);
  next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd);
  const auto lacked = consumer_->lacked().time;
  EXPECT_EQ(consumer_->lacked().time, lacked);
}

TEST_F(ConsumerTest, LacksTheEndOfAChangeOfItsJobWhileThatHoldsIt) {
  start();
  next_batch();
  consumer_->hold();
  const auto change = static_cast<std::size_t>(stream::Shortage::kChange);
  // What was begun before is still sent.
  while (consumer_->lacked().time[change] == std::chrono::nanoseconds(0)) {
    if (!silent()) next_batch();
    release_all();
  }
  consumer_->go_on();
  next_batch();
}

TEST_F(ConsumerTest, LacksWhatTheDiskIsToGrantIt) {
  ConsumerOptions options = options_of(make_phase("test"));
  options.granted = 1;
  start(std::move(options));
  next_batch();
  wait_for(*consumer_, stream::Shortage::kDisk);
  consumer_->grant(job::kNoTurn);
  next_batch();
}

TEST_F(ConsumerTest, TellsTheTurnOfEachBatch) {
  start(1, {0, 9});
  for (std::uint64_t turn = 0; turn < 5; ++turn) EXPECT_EQ(pass().turn, turn);
}

TEST_F(ConsumerTest, GoesToTheEpochThatItsLoopSeeks) {
  start();
  next_batch();
  ASSERT_TRUE(go_to(1, 3, 9).ok());
  const auto reset = next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.seek, 9U);
  EXPECT_EQ(reset.epoch, 3U);
  EXPECT_EQ(reset.position, 0U);
  release_all();
  const wire::BatchFrame batch = next_batch();
  EXPECT_EQ(batch.epoch, 3U);
  EXPECT_EQ(batch.step, 0U);
  EXPECT_EQ(batch.seek, 9U);
  EXPECT_EQ(batch.turn, 1U) << "what was sent beyond is taken back";
}

TEST_F(ConsumerTest, StaysWhereItIsWhenASeekIsRefused) {
  start();
  EXPECT_FALSE(go_to(7, 3, 1).ok()) << "it was not sent so many batches";
  EXPECT_FALSE(go_to(0, ~std::uint64_t{0}, 1).ok());
  EXPECT_EQ(next_batch().step, 0U);
  release_all();
  EXPECT_EQ(next_batch().step, 1U);
}

TEST_F(ConsumerTest, LeavesOutStepsThatItsLoopSkips) {
  start(1, {0, 2});
  next_batch();
  ASSERT_TRUE(skip(1, 3, 1).ok());
  const auto reset = next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.step, 6U);
  EXPECT_EQ(reset.position, 24U);
  release_all();
  const wire::BatchFrame batch = next_batch();
  EXPECT_EQ(batch.step, 6U);
  EXPECT_EQ(batch.next_position, 28U);
}

TEST_F(ConsumerTest, SkipsNoFurtherThanTheEndOfTheEpoch) {
  start(1, {0, 2});
  ASSERT_TRUE(skip(0, 3000, 1).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).step, 10U);
  EXPECT_EQ(next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd).epoch, 0U);
}

TEST_F(ConsumerTest, SkipsStepsOfTheEpochToWhichASkipOfTheJobHasLedIt) {
  start();
  const job::Turn turn = change(job::Edit::Skip{.epoch = 0, .steps = 20});
  for (job::Turn before = 0; before < turn; ++before) EXPECT_EQ(pass().epoch, 0U);
  EXPECT_EQ(next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd).epoch, 0U);
  ASSERT_TRUE(consumer_->seek({.turn = turn, .epoch = 1, .skip = 3, .serial = 1}).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).step, 3U);
  release_all();
  const wire::BatchFrame batch = pass(1);
  EXPECT_EQ((job::StepAt{batch.epoch, batch.step}), (job::StepAt{1, 3}));
}

TEST_F(ConsumerTest, GoesBackToWhatItHasReadAlready) {
  start();
  for (int step = 0; step < 7; ++step) consumer_->release(next_batch().lease);
  ASSERT_TRUE(go_to(7, 0, 1).ok());
  next<wire::ResetFrame>(wire::FrameType::kReset);
  release_all();
  EXPECT_EQ(next_batch().step, 0U);
}

TEST_F(ConsumerTest, GoesBackAndForthWithinOneStreamsSlots) {
  start();
  next_batch();
  const std::uint64_t bytes = consumer_->view().arena_bytes;
  for (std::uint32_t seek = 1; seek < 20; ++seek) {
    ASSERT_TRUE(go_to(seek, seek % 3, seek).ok());
    EXPECT_EQ(pass(seek).epoch, seek % 3);
  }
  EXPECT_EQ(consumer_->view().arena_bytes, bytes);
}

TEST_F(ConsumerTest, GoesElsewhereAtTheTurnOfASeekOfTheJob) {
  start();
  next_batch();
  const job::Turn turn = change(job::Edit::Seek{{3, 1}});
  release_all();
  for (job::Turn before = 1; before < turn; ++before) EXPECT_EQ(pass().epoch, 0U);
  const wire::BatchFrame there = pass();
  EXPECT_EQ(there.turn, turn);
  EXPECT_EQ((job::StepAt{there.epoch, there.step}), (job::StepAt{3, 1}));
}

// It joins streams for a few of the changes ahead alone, and for the others as it comes to them.
TEST_F(ConsumerTest, LeavesNoTurnOutWhereTheJobIsChangedBeyondWhatItHasJoined) {
  constexpr job::Turn kApart = 2;
  constexpr job::Turn kSeeks = 8;
  ConsumerOptions options = options_of(make_phase("test"));
  const auto sought = [](const JobPlan& plan, job::Turn seek) {
    const job::Turn turn = kApart * seek;
    return *with_edit(plan, {.turn = turn, .change = job::Edit::Seek{{seek, 0}}}, turn, 0);
  };
  for (job::Turn seek = 1; seek < kSeeks; ++seek) options.plan = sought(*options.plan, seek);
  start(std::move(options));
  (void)consumer_->hold();
  ASSERT_TRUE(consumer_->prepare(sought(*plan_of_job_, kSeeks), kApart * kSeeks).ok());
  consumer_->commit();
  consumer_->go_on();
  for (job::Turn turn = 0; turn < kApart * (kSeeks + 1); ++turn) {
    const wire::BatchFrame batch = pass();
    EXPECT_EQ(batch.turn, turn);
    EXPECT_EQ((job::StepAt{batch.epoch, batch.step}), (job::StepAt{turn / kApart, turn % kApart}));
  }
}

TEST_F(ConsumerTest, GoesWhereTheJobIsSoughtThoughItsLoopSeeksBefore) {
  start();
  next_batch();
  const job::Turn turn = change(job::Edit::Seek{{3, 1}});
  ASSERT_TRUE(go_to(1, 30, 1).ok());
  release_all();
  for (job::Turn before = 1; before < turn; ++before) EXPECT_EQ(pass(1).epoch, 30U);
  EXPECT_EQ(pass(1).epoch, 3U);
}

TEST_F(ConsumerTest, TellsNoEndWhereTheJobChangesAsItWaitsBehindASeekBack) {
  start();
  const job::Turn there = change(job::Edit::Seek{{3, 1}});
  while (pass().turn < there) {
  }
  job::Turn sent = 0;
  while (held_.size() < kCredits) sent = next_batch().turn + 1;
  const job::Turn back = change(job::Edit::Seek{{0, 1}});
  while (sent < back) {
    consumer_->release(held_.front());
    held_.erase(held_.begin());
    sent = next_batch().turn + 1;
  }
  EXPECT_EQ(consumer_->view().progress.next, (job::StepAt{0, 1})) << "it has no credit left";
  change(job::Edit::Skip{.epoch = 0, .steps = 1});
  release_all();
  while (const auto frame = test::receive_frame(socket_.get())) {
    ASSERT_NE(frame->type(), wire::FrameType::kEpochEnd);
    if (frame->type() == wire::FrameType::kBatch) break;
  }
}

TEST_F(ConsumerTest, LeavesTheJobsPlaceByALaterSeekOfItsLoop) {
  start();
  next_batch();
  const job::Turn turn = change(job::Edit::Seek{{3, 1}});
  release_all();
  while (pass().turn < turn) {
  }
  ASSERT_TRUE(go_to(turn + 1, 0, 1).ok());
  EXPECT_EQ(pass(1).epoch, 0U);
  EXPECT_EQ(pass(1).epoch, 0U);
}

TEST_F(ConsumerTest, SeeksOnceItIsNotHeldAnyMore) {
  start();
  next_batch();
  next_batch();
  (void)consumer_->hold();
  ASSERT_TRUE(go_to(2, 3, 1).ok());
  ASSERT_TRUE(go_to(2, 4, 2).ok());
  EXPECT_EQ(consumer_->view().progress.next, (job::StepAt{0, 2}));
  EXPECT_TRUE(silent());
  consumer_->go_on();
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).seek, 2U);
  release_all();
  EXPECT_EQ(next_batch().epoch, 4U);
}

TEST_F(ConsumerTest, SeeksBeforeAnEditThatWasMadeWhileItWasHeld) {
  start();
  next_batch();
  next_batch();
  const Edited edit = edited(job::Edit::Seek{{3, 1}});
  ASSERT_TRUE(go_to(2, 30, 1).ok());
  ASSERT_TRUE(consumer_->prepare(edit.plan, edit.turn).ok());
  consumer_->commit();
  consumer_->go_on();
  release_all();
  for (job::Turn turn = 2; turn < edit.turn; ++turn) EXPECT_EQ(pass(1).epoch, 30U);
  EXPECT_EQ(pass(1).epoch, 3U);
}

TEST_F(ConsumerTest, EndsWhenItSoughtWhereNoJobCanBeWhileItWasHeld) {
  start();
  (void)consumer_->hold();
  ASSERT_TRUE(go_to(0, ~std::uint64_t{0}, 1).ok());
  consumer_->go_on();
  EXPECT_EQ(next<wire::ErrorFrame>(wire::FrameType::kError).fatal, 1U);
}

TEST_F(ConsumerTest, IsSentNothingOfATurnThatIsPreparedBeforeItIsCommitted) {
  start();
  next_batch();
  const Edited edit = swapped(make_phase("other"));
  ASSERT_TRUE(consumer_->prepare(edit.plan, edit.turn).ok());
  release_all();
  for (job::Turn turn = 1; turn < edit.turn; ++turn) pass();
  EXPECT_FALSE(consumer_->waits_for().empty());
  EXPECT_EQ(consumer_->view().progress.sent, edit.turn);
  consumer_->commit();
  consumer_->go_on();
  EXPECT_EQ(pass().turn, edit.turn);
}

TEST_F(ConsumerTest, GoesOnAsItWasAfterAnAbort) {
  start();
  next_batch();
  const Edited edit = swapped(make_phase("other"));
  ASSERT_TRUE(consumer_->prepare(edit.plan, edit.turn).ok());
  release_all();
  for (job::Turn turn = 1; turn < edit.turn; ++turn) pass();
  ASSERT_TRUE(consumer_->abort().ok());
  consumer_->go_on();
  EXPECT_EQ(pass().step, edit.turn);
}

TEST_F(ConsumerTest, IsNotHarmedByAFailureOfWhatIsOnlyPrepared) {
  start();
  next_batch();
  const Edited edit = swapped(make_phase("other", broken_));
  ASSERT_TRUE(consumer_->prepare(edit.plan, edit.turn).ok());
  while (consumer_->prepared().ok()) std::this_thread::yield();
  release_all();
  for (job::Turn turn = 1; turn < edit.turn; ++turn) EXPECT_EQ(pass().step, turn);
  ASSERT_TRUE(consumer_->abort().ok());
  consumer_->go_on();
  EXPECT_TRUE(consumer_->prepared().ok());
  EXPECT_EQ(next_batch().step, edit.turn);
}

TEST_F(ConsumerTest, EndsWhenWhatFailedIsCommittedAllTheSame) {
  start();
  next_batch();
  const Edited edit = swapped(make_phase("other", broken_));
  ASSERT_TRUE(consumer_->prepare(edit.plan, edit.turn).ok());
  while (consumer_->prepared().ok()) std::this_thread::yield();
  consumer_->commit();
  consumer_->go_on();
  EXPECT_EQ(next<wire::ErrorFrame>(wire::FrameType::kError).fatal, 1U);
}

TEST_F(ConsumerTest, LeavesOutWhatTheJobSkipsInTheEpochThatWasMeant) {
  start();
  next_batch();
  const job::Turn turn = change(job::Edit::Skip{.epoch = 0, .steps = 4});
  release_all();
  for (job::Turn before = 1; before < turn; ++before) EXPECT_EQ(pass().step, before);
  EXPECT_EQ(pass().step, turn + 4);
}

TEST_F(ConsumerTest, KeepsItsArenaWhenItGoesBackAfterItWasTuned) {
  start();
  next_batch();
  const pipeline::PhasePtr phase = plan_of_job_->last_phase();
  const std::uint64_t bytes = consumer_->view().arena_bytes;
  release_all();
  consumer_->rename(
      with_phases(*plan_of_job_, {{phase, std::make_shared<pipeline::Phase>(*phase)}}));
  ASSERT_TRUE(go_to(1, 0, 1).ok());
  next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(consumer_->view().arena_bytes, bytes);
}

TEST_F(ConsumerTest, ReadsAnotherPartOfTheRowsFromAResizeOn) {
  start(2);
  const job::Turn turn = change(job::Edit::Resize{.shards = 1});
  std::uint64_t position = 0;
  while (position < kItems) {
    const wire::BatchFrame batch = next_batch();
    const std::uint32_t shards = batch.turn < turn ? 2 : 1;
    EXPECT_EQ(batch.next_position, position + 4 * shards);
    position = batch.next_position;
    consumer_->release(batch.lease);
  }
}

TEST_F(ConsumerTest, AsksItsProcessToTellWhenItsLoopComesToWhereShardsEnter) {
  start();
  next_batch();
  const job::Turn turn = change(job::Edit::Resize{.shards = 2});
  release_all();
  wire::BatchFrame batch = pass();
  while (batch.tell == 0) batch = pass();
  // The last one before, where that was not sent yet.
  EXPECT_GE(batch.turn + 1, turn);
  EXPECT_LE(batch.turn, turn);
  consumer_->handed(turn - 1);
  consumer_->handed(turn + 1'000'000);
  EXPECT_EQ(host_->came_to_entry, 0) << "it was sent no such batch";
  consumer_->handed(turn);
  EXPECT_EQ(host_->came_to_entry, 1);
  EXPECT_EQ(pass().tell, 0U);
}

TEST_F(ConsumerTest, StopsBeforeAPlannedSwapAndAsksForItsTurn) {
  ConsumerOptions options = options_of(make_phase("test"));
  auto plan = std::make_shared<JobPlan>(*options.plan);
  const pipeline::PhasePtr other = make_phase("other");
  const std::uint32_t version = plan->schedule.add_version(stream::facts_of(*other));
  plan->phases[version] = other;
  ASSERT_TRUE(plan->schedule.plan({.from = 0, .place = job::StepAt{0, 4}, .version = version}));
  options.plan = plan;
  start(std::move(options));
  for (std::uint64_t step = 0; step < 4; ++step) EXPECT_EQ(pass().step, step);
  while (host_->came_to_planned == 0) std::this_thread::yield();
  EXPECT_EQ(consumer_->view().progress.sent, 4U);
  const job::Turn turn = consumer_->hold();
  EXPECT_EQ(turn, 4U) << "nothing of it was begun for anybody";
  const auto placed = with_edit(*plan, {.turn = turn, .change = job::Edit::Swap{version}}, 4, 0);
  ASSERT_TRUE(placed);
  ASSERT_TRUE(consumer_->prepare(*placed, turn).ok());
  consumer_->commit();
  consumer_->go_on();
  EXPECT_EQ(pass().step, 4U);
}

TEST_F(ConsumerTest, LetsItsStreamGoOnWhenItEndsWhileItIsHeld) {
  const pipeline::PhasePtr phase = make_phase("test");
  const auto second = std::make_shared<delivery::Connection>(
      8, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), Peer{},
      std::make_shared<UserBytes>(std::uint64_t{1} << 30), [] {});
  auto ends = std::make_shared<Consumer>(options_of(phase), second, streams_);
  ASSERT_TRUE(ends->connect().ok());
  ConsumerOptions other = options_of(phase);
  other.way.job = 2;
  start(std::move(other));
  (void)ends->hold();
  ends->end(true);
  for (std::uint64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(next_batch().step, step);
    release_all();
  }
}

TEST_F(ConsumerTest, IsSentNoTurnThatItIsNotGranted) {
  ConsumerOptions options = options_of(make_phase("test"));
  options.granted = 0;
  start(std::move(options));
  EXPECT_EQ(host_->asked, 1);
  consumer_->grant(4);
  for (job::Turn turn = 0; turn < 4; ++turn) EXPECT_EQ(pass().turn, turn);
  EXPECT_EQ(host_->asked, 2) << "before it has used up all";
  EXPECT_TRUE(consumer_->view().asks);
  EXPECT_EQ(consumer_->view().ready, 0U);
  ASSERT_TRUE(go_to(4, 5, 1).ok());
  EXPECT_EQ(consumer_->view().progress.sent, 4U) << "a seek is no way around it";
  consumer_->grant(8);
  EXPECT_EQ(pass(1).turn, 4U);
}

TEST_F(ConsumerTest, EndsTheShardThatAResizeLeavesOut) {
  start(2, {}, 100, false, 1);
  const job::Turn turn = change(job::Edit::Resize{.shards = 1});
  for (job::Turn before = 0; before < turn; ++before) consumer_->release(next_batch().lease);
  const auto bye = next<wire::ByeFrame>(wire::FrameType::kBye);
  EXPECT_EQ(bye.reason, wire::ByeReason::kResized);
  EXPECT_TRUE(consumer_->view().resized_away);
}

TEST_F(ConsumerTest, GivesTheArenaBackOnceItsProcessIsGoneAndNothingIsWrittenAnyMore) {
  start();
  next_batch();
  EXPECT_EQ(arenas_.idle_bytes(), 0U);
  consumer_->end(true);
  consumer_->retire();
  executor_.stop();
  EXPECT_EQ(arenas_.idle_bytes(), 0U);
  consumer_->reclaim();
  streams_.tick();
  EXPECT_GT(arenas_.idle_bytes(), 0U);
}

// No worker may have rows while no consumer lacks a batch.
class YieldTest : public ConsumerTest {
 protected:
  YieldTest() : ConsumerTest({.threads = 2, .ahead = 0}) {}
  // Until workers leave alone another stream, which they are offered.
  void wait_until_workers_yield() {
    const auto other =
        executor_.open_stream(make_phase("other")->run, std::make_shared<engine::QuietPort>());
    const auto yielded = [this] { return executor_.worker_time().of(engine::Idle::kYield); };
    const auto before = yielded();
    while (yielded() == before) std::this_thread::yield();
    executor_.close_stream(other);
  }
};

TEST_F(YieldTest, LetsWorkersYieldWhileItHasAllBatchesThatItMayHold) {
  start();
  for (int times = 0; times < 3; ++times) {
    next_batch();
    next_batch();
    wait_until_workers_yield();
    release_all();
  }
}

TEST_F(YieldTest, LetsWorkersYieldOnceItHasEndedForWantOfABatch) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  start();
  wait_for(*consumer_, stream::Shortage::kBytes);
  consumer_->end(false);
  source_->answer();
  wait_until_workers_yield();
}

TEST_F(YieldTest, LetsWorkersYieldWhileItWaitsForItsNextEpochToOpen) {
  start(1, {0, 9}, 1);
  consumer_->release(next_batch().lease);
  wait_for(*consumer_, stream::Shortage::kEpoch);
  wait_until_workers_yield();
  consumer_->open_epochs(2, false);
  next_batch();
}

}  // namespace
}  // namespace spdld::session

// SPDX-License-Identifier: Apache-2.0
#include "session/consumer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/run.h"
#include "spdld/wire.h"
#include "tests/support/fake_source.h"
#include "tests/support/judge.h"
#include "tests/support/pipelines.h"
#include "tests/support/received_frame.h"

namespace spdld::session {
namespace {

using spdld::testing::FakeSource;

constexpr std::uint64_t kItems = 40;  // 10 steps of 4
constexpr std::uint32_t kCredits = 2;

// The consumer's end of the socket, as frames.
class ConsumerTest : public ::testing::Test {
 protected:
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
    executor_.stop();  // a worker that is done with a batch may still hold its stream
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
    options.shard = shard;
    options.start = at;
    options.open_epochs = open_epochs;
    options.last_known = last_known;
    start(std::move(options));
  }
  void start(ConsumerOptions options) {
    consumer_ = std::make_shared<Consumer>(std::move(options), connection_, streams_);
    ASSERT_TRUE(consumer_->connect().ok());
    consumer_->begin();
  }
  static ConsumerOptions options_of(const pipeline::PhasePtr& phase, std::uint32_t num_shards = 1) {
    return {.timeline = stream::Timeline(phase, num_shards),
            .credits = kCredits,
            .start = {},
            .open_epochs = 100,
            .job = 1,
            .meter = std::make_shared<stream::ByteMeter>(),
            .judge = std::make_shared<spdld::testing::Judge>(),
            .gain = std::make_shared<SharingGain>()};
  }

  // Blocks until a frame of this kind comes; others before it are passed over.
  template <typename Frame>
  Frame next(wire::FrameType type) {
    while (const auto frame = test::receive_frame(socket_.get())) {
      if (frame->type() == wire::FrameType::kBatch) {
        const auto batch = frame->as<wire::BatchFrame>();
        held_.push_back(batch.lease);
        if (gives_back_ && type != frame->type()) {
          release_all();
          passed_.push_back({batch.epoch, batch.step});
        }
      }
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
  // The step behind which it goes on at `to`.
  job::StepAt send_to(job::StepAt to) {
    job::StepAt from = consumer_->hold();
    for (; from <= consumer_->view().next; from = consumer_->hold()) {  // it is yet to be begun
      consumer_->go_on();
      std::this_thread::yield();
    }
    stream::Timeline timeline = consumer_->timeline();
    timeline.redeal(to, timeline.position_of(to));
    consumer_->jump({.from = from, .to = to, .timeline = timeline, .moves = 1});
    consumer_->go_on();
    gives_back_ = true;
    return from;
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
  engine::Executor executor_{engine::ExecutorOptions{.threads = 2}};
  stream::Streams streams_{executor_, arenas_, delivery::ArenaKind::kMemfd, clock_};
  UniqueFd socket_;
  std::vector<std::uint64_t> held_;
  // Whether batches that next() passes over are given back at once, and which these were.
  bool gives_back_ = false;
  std::vector<job::StepAt> passed_;
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

TEST_F(ConsumerTest, GoesToWhereTheConsumerSeeks) {
  start();
  next_batch();
  ASSERT_TRUE(consumer_->seek({3, 5}, 20, 0, 9).ok());
  const auto reset = next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.seek, 9U);
  EXPECT_EQ(reset.epoch, 3U);
  EXPECT_EQ(reset.position, 20U);
  release_all();
  const wire::BatchFrame batch = next_batch();
  EXPECT_EQ(batch.epoch, 3U);
  EXPECT_EQ(batch.step, 5U);
  EXPECT_EQ(batch.seek, 9U);
}

TEST_F(ConsumerTest, CutsTheEpochAnewAtAPositionOfAnotherWorldSize) {
  start();
  ASSERT_TRUE(consumer_->seek({0, 3}, 13, 0, 1).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).position, 13U);
  release_all();
  EXPECT_EQ(next_batch().next_position, 17U);
}

TEST_F(ConsumerTest, ForgetsWhereAnEarlierSeekCutAnEpoch) {
  start();
  ASSERT_TRUE(consumer_->seek({0, 3}, 13, 0, 1).ok());
  ASSERT_TRUE(consumer_->seek({0, 0}, 0, 0, 2).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).seek, 1U);
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).seek, 2U);
  release_all();
  for (std::uint64_t step = 0; step < 10;) {
    const wire::BatchFrame batch = next_batch();
    if (batch.seek == 2) {
      EXPECT_EQ(batch.step, step);
      EXPECT_EQ(batch.next_position, (++step) * 4);
    }
    release_all();
  }
}

TEST_F(ConsumerTest, StaysWhereItIsWhenASeekIsRefused) {
  start();
  EXPECT_FALSE(consumer_->seek({0, 1}, kItems + 1, 0, 1).ok());
  EXPECT_FALSE(consumer_->seek({0, ~std::uint64_t{0}}, 0, 0, 1).ok());
  EXPECT_EQ(next_batch().step, 0U);
  release_all();
  EXPECT_EQ(next_batch().step, 1U);
}

TEST_F(ConsumerTest, LeavesOutStepsThatItIsToldToSkip) {
  start();
  ASSERT_TRUE(consumer_->seek({0, 2}, 8, 3, 1).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).step, 5U);
  release_all();
  const wire::BatchFrame batch = next_batch();
  EXPECT_EQ(batch.step, 5U);
  EXPECT_EQ(batch.next_position, 24U);
}

TEST_F(ConsumerTest, SkipsNoFurtherThanTheEndOfTheEpoch) {
  start();
  ASSERT_TRUE(consumer_->seek({0, 2}, 8, 3000, 1).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).step, 10U);
  EXPECT_EQ(next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd).epoch, 0U);
}

TEST_F(ConsumerTest, GoesBackToWhatItHasReadAlready) {
  start();
  for (int step = 0; step < 7; ++step) consumer_->release(next_batch().lease);
  ASSERT_TRUE(consumer_->seek({0, 1}, 4, 0, 1).ok());
  next<wire::ResetFrame>(wire::FrameType::kReset);
  release_all();
  EXPECT_EQ(next_batch().step, 1U);
}

TEST_F(ConsumerTest, GoesElsewhereBehindTheStepThatIsSaid) {
  start();
  next_batch();
  next_batch();
  const job::StepAt from = send_to({3, 1});
  EXPECT_EQ(consumer_->jumps_at(), from);
  EXPECT_EQ(consumer_->view().next, (job::StepAt{3, 1}));
  release_all();
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).moves, 1U);
  ASSERT_FALSE(passed_.empty());
  const job::StepAt last = passed_.back();
  EXPECT_EQ(from, last.step + 1 < 10 ? (job::StepAt{last.epoch, last.step + 1})
                                     : (job::StepAt{last.epoch + 1, 0}));
  EXPECT_EQ(next_batch().epoch, 3U);
  EXPECT_EQ(consumer_->jumps_at(), std::nullopt);
}

TEST_F(ConsumerTest, GoesElsewhereThoughItSeeksAheadOfThatStepBefore) {
  start();
  next_batch();
  next_batch();
  send_to({3, 1});
  ASSERT_TRUE(consumer_->seek({30, 0}, 0, 0, 1).ok());
  const auto reset = next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.seek, 1U);
  EXPECT_EQ(reset.moves, 1U);
  release_all();
  EXPECT_EQ(next_batch().epoch, 3U);
}

TEST_F(ConsumerTest, GoesElsewhereAfterASeekBackFromThere) {
  start();
  for (int step = 0; step < 4; ++step) consumer_->release(next_batch().lease);
  next_batch();
  next_batch();  // with all its credits in hand it does not come there before
  const job::StepAt from = send_to({3, 1});
  ASSERT_TRUE(consumer_->seek({0, 1}, 4, 0, 1).ok());
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).moves, 0U);
  release_all();
  passed_.clear();
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).moves, 1U);
  ASSERT_FALSE(passed_.empty());
  EXPECT_EQ(passed_.front(), (job::StepAt{0, 1}));
  EXPECT_LT(passed_.back(), from);
  EXPECT_EQ(next_batch().epoch, 3U);
}

TEST_F(ConsumerTest, GoesWhereItSoughtWhileItWasHeldOnceItIsNotHeldAnyMore) {
  start();
  next_batch();
  next_batch();
  (void)consumer_->hold();
  ASSERT_TRUE(consumer_->seek({3, 5}, 20, 0, 1).ok());
  ASSERT_TRUE(consumer_->seek({4, 5}, 20, 0, 2).ok());
  EXPECT_EQ(consumer_->view().next, (job::StepAt{0, 2}));
  EXPECT_TRUE(silent());
  consumer_->go_on();
  EXPECT_EQ(next<wire::ResetFrame>(wire::FrameType::kReset).seek, 2U);
  release_all();
  EXPECT_EQ(next_batch().epoch, 4U);
}

TEST_F(ConsumerTest, IsAskedToAttachAgainIfItSoughtWhileItWasHeldAndSentElsewhereFromWhereItIs) {
  start();
  next_batch();
  next_batch();
  const job::StepAt here = consumer_->view().next;
  (void)consumer_->hold();
  ASSERT_TRUE(consumer_->seek({30, 0}, 0, 0, 1).ok());
  consumer_->jump({.from = here, .to = {3, 1}, .timeline = consumer_->timeline(), .moves = 1});
  consumer_->go_on();
  EXPECT_EQ(next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kShutdown);
  release_all();
  EXPECT_EQ(consumer_->view().moves, 0U) << "what it gives back says nothing";
}

TEST_F(ConsumerTest, EndsWhenItSoughtWhereNoJobCanBeWhileItWasHeld) {
  start();
  (void)consumer_->hold();
  ASSERT_TRUE(consumer_->seek({0, 1}, kItems + 1, 0, 1).ok());
  consumer_->go_on();
  EXPECT_EQ(next<wire::ErrorFrame>(wire::FrameType::kError).fatal, 1U);
}

TEST_F(ConsumerTest, GoesOnAfterAnAbortThoughItSoughtRightBeforeThePoint) {
  start();
  next_batch();
  (void)consumer_->hold();
  ASSERT_TRUE(consumer_->prepare_swap({20, 5}, make_phase("other")).ok());
  consumer_->go_on();
  ASSERT_TRUE(consumer_->seek({20, 3}, 12, 0, 1).ok());
  gives_back_ = true;
  next<wire::ResetFrame>(wire::FrameType::kReset);
  release_all();
  EXPECT_EQ(next_batch().step, 3U);
  EXPECT_EQ(next_batch().step, 4U);
  release_all();
  ASSERT_TRUE(consumer_->abort_swap().ok());
  EXPECT_EQ(next_batch().step, 5U);
}

TEST_F(ConsumerTest, IsNotHarmedByAFailureOfWhatIsOnlyPrepared) {
  start();
  next_batch();
  const job::StepAt from = consumer_->hold();
  ASSERT_TRUE(consumer_->prepare_swap(from, make_phase("other", broken_)).ok());
  consumer_->go_on();
  while (consumer_->prepared().ok()) std::this_thread::yield();
  release_all();
  for (std::uint64_t step = 1; step < from.step; ++step) {
    EXPECT_EQ(next_batch().step, step);
    release_all();
  }
  ASSERT_TRUE(consumer_->abort_swap().ok());
  EXPECT_TRUE(consumer_->prepared().ok());
  EXPECT_EQ(next_batch().step, from.step);
}

TEST_F(ConsumerTest, EndsWhenWhatFailedIsCommittedAllTheSame) {
  start();
  next_batch();
  const job::StepAt from = consumer_->hold();
  ASSERT_TRUE(consumer_->prepare_swap(from, make_phase("other", broken_)).ok());
  consumer_->go_on();
  while (consumer_->prepared().ok()) std::this_thread::yield();
  consumer_->commit_swap();
  EXPECT_EQ(next<wire::ErrorFrame>(wire::FrameType::kError).fatal, 1U);
}

TEST_F(ConsumerTest, LeavesOutWhatTheJobHasLeftOutBehindAPlaceItGoesTo) {
  start();
  next_batch();
  const job::StepAt from = consumer_->hold();
  ASSERT_EQ(from.epoch, 0U);
  ASSERT_TRUE(consumer_->resize({3, 4}, 32, 1, 4).ok());
  consumer_->go_on();
  next<wire::ResetFrame>(wire::FrameType::kReset);
  ASSERT_TRUE(consumer_->seek({3, 3}, 12, 0, 1).ok());
  next<wire::ResetFrame>(wire::FrameType::kReset);
  release_all();
  const wire::BatchFrame before = next_batch();
  EXPECT_EQ(before.step, 3U);
  EXPECT_EQ(before.next_position, 16U);
  release_all();
  const wire::BatchFrame behind = next_batch();
  EXPECT_EQ(behind.step, 4U);
  EXPECT_EQ(behind.next_position, 36U);
}

TEST_F(ConsumerTest, KeepsItsArenaWhenItGoesBackAfterItWasTuned) {
  start();
  next_batch();
  const pipeline::PhasePtr phase = consumer_->timeline().last_phase();
  const std::uint64_t bytes = consumer_->view().arena_bytes;
  release_all();
  consumer_->rename(phase, std::make_shared<pipeline::Phase>(*phase));
  ASSERT_TRUE(consumer_->seek({0, 0}, 0, 0, 1).ok());
  next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(consumer_->view().arena_bytes, bytes);
}

TEST_F(ConsumerTest, DealsTheRestOutAnewFromTheStepThatNobodyHasBegun) {
  start(2);
  const job::StepAt frontier = consumer_->hold();
  ASSERT_TRUE(consumer_->resize(frontier, frontier.step * 8, 1).ok());
  consumer_->go_on();
  std::uint64_t position = 0;
  while (position < kItems) {
    const wire::BatchFrame batch = next_batch();
    const std::uint32_t shards = batch.step < frontier.step ? 2 : 1;
    EXPECT_EQ(batch.next_position, position + 4 * shards);
    position = batch.next_position;
    consumer_->release(batch.lease);
  }
}

TEST_F(ConsumerTest, LetsItsStreamGoOnWhenItEndsWhileItIsHeld) {
  const pipeline::PhasePtr phase = make_phase("test");
  const auto second = std::make_shared<delivery::Connection>(
      8, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), Peer{},
      std::make_shared<UserBytes>(std::uint64_t{1} << 30), [] {});
  auto ends = std::make_shared<Consumer>(options_of(phase), second, streams_);
  ASSERT_TRUE(ends->connect().ok());
  ConsumerOptions other = options_of(phase);
  other.job = 2;
  start(std::move(other));
  (void)ends->hold();
  ends->end(true);
  for (std::uint64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(next_batch().step, step);
    release_all();
  }
}

TEST_F(ConsumerTest, IsSentNothingOfAPlaceThatItGoesAheadToBeforeItIsGrantedThere) {
  int asked = 0;
  ConsumerOptions options = options_of(make_phase("test"));
  options.granted = 0;
  options.ask_for_grant = [&] { ++asked; };
  start(std::move(options));
  EXPECT_EQ(asked, 1);
  consumer_->grant(0, 0, 100);
  next_batch();
  ASSERT_TRUE(consumer_->seek({5, 0}, 0, 0, 1).ok());
  EXPECT_EQ(asked, 2);
  release_all();
  const Consumer::View there = consumer_->view();
  EXPECT_EQ(there.ahead, 0U);
  EXPECT_TRUE(there.asks);
  consumer_->grant(there.turn - 1, there.batches, 100);  // of a record from before it went
  EXPECT_EQ(consumer_->view().ahead, 0U);
  consumer_->grant(there.turn, there.batches, 100);
  wire::BatchFrame batch = next_batch();
  while (batch.seek == 0) batch = next_batch();
  EXPECT_EQ(batch.epoch, 5U);
  // Back to where it was asks no disk.
  ASSERT_TRUE(consumer_->seek({0, 0}, 0, 0, 2).ok());
  EXPECT_EQ(asked, 2);
}

TEST_F(ConsumerTest, EndsTheShardThatAResizeLeavesOut) {
  start(2, {}, 100, false, 1);
  const job::StepAt frontier = consumer_->hold();
  ASSERT_TRUE(consumer_->resize(frontier, frontier.step * 8, 1).ok());
  consumer_->go_on();
  for (std::uint64_t step = 0; step < frontier.step; ++step) consumer_->release(next_batch().lease);
  const auto bye = next<wire::ByeFrame>(wire::FrameType::kBye);
  EXPECT_EQ(bye.reason, wire::ByeReason::kResized);
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

}  // namespace
}  // namespace spdld::session

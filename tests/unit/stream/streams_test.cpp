// SPDX-License-Identifier: Apache-2.0
#include "stream/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/stream/reading.h"

namespace spdld::stream {
namespace {

using ::testing::HasSubstr;
using testing::kSteps;
using testing::Reader;
using testing::ReaderPtr;
using testing::rows_of;

constexpr std::uint32_t kJobCredits = 2;
constexpr std::uint32_t kSlots = kJobCredits + 2;

class StreamsTest : public testing::StreamsFixture {
 protected:
  StreamWish wish(const Timeline& timeline, const ReaderPtr& reader, job::StepAt from = {}) {
    return {.timeline = timeline,
            .from = from,
            .job = reader->job,
            .credits = kJobCredits,
            .open_epochs = 100,
            .meter = meter_};
  }
  std::vector<Leg> connect(const ReaderPtr& reader, const StreamWish& wish) {
    auto legs = streams_.connect(reader, wish);
    EXPECT_TRUE(legs) << legs.error().message();
    return legs ? *legs : std::vector<Leg>();
  }
  std::vector<Leg> connect(const ReaderPtr& reader, job::StepAt from = {}) {
    return connect(reader, wish(timeline_, reader, from));
  }
  static void leave(const ReaderPtr& reader, const std::vector<Leg>& legs) {
    for (const Leg& leg : legs) leg.stream->leave(reader->holder());
  }
  // What the reader is given at `at`, on its way.
  static std::string pass(const ReaderPtr& reader, std::vector<Leg>& legs, job::StepAt at) {
    while (legs.size() > 1 && legs[1].from <= at) {
      legs.front().stream->leave(reader->holder());
      legs.erase(legs.begin());
    }
    return reader->pass(*legs.front().stream, at);
  }

  Streams streams_{executor_, arenas_, delivery::ArenaKind::kMemfd, clock_};
  Timeline timeline_{std::make_shared<pipeline::Phase>(), 1};
  void SetUp() override {
    StreamsFixture::SetUp();
    timeline_ = Timeline(phase(), 1);
  }
};

TEST_F(StreamsTest, LetsJobsShareThatNeedTheSameRowsOfTheSameContent) {
  const auto one = reader(1);
  const auto other = reader(2);
  const Timeline same(phase(), 1);  // a phase of its own, alike in content and seed
  const auto first = connect(one);
  const auto second = connect(other, wish(same, other));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(first[0].stream, second[0].stream);
}

TEST_F(StreamsTest, SharesNothingBetweenOthers) {
  const auto one = reader(1);
  const auto first = connect(one);
  const auto differs = [&](const Timeline& timeline, auto change) {
    const auto other = reader(2);
    StreamWish wanted = wish(timeline, other);
    change(wanted);
    const auto legs = connect(other, wanted);
    EXPECT_NE(legs[0].stream, first[0].stream);
    leave(other, legs);
  };
  const auto nothing = [](StreamWish&) {};
  differs(Timeline(phase("other content"), 1), nothing);
  differs(Timeline(phase("content", 2), 1), nothing);
  differs(Timeline(phase(), 2), nothing);
  differs(timeline_, [](StreamWish& wanted) { wanted.uid = 7; });
  differs(timeline_, [](StreamWish& wanted) { wanted.replicas = 2; });
  differs(timeline_, [](StreamWish& wanted) { wanted.from = {1, 0}; });
}

TEST_F(StreamsTest, SharesNoStreamOfOnePhaseWhereTheNextOneBegins) {
  const auto one = reader(1);
  timeline_.swap({0, 4}, phase("other content"));
  StreamWish until = wish(timeline_, one);
  until.until = {0, 4};
  auto first = connect(one, until);
  for (std::uint64_t step = 0; step < 3; ++step) pass(one, first, {0, step});
  const auto other = reader(2);
  StreamWish behind = wish(timeline_, other);
  behind.from = {0, 4};
  const auto legs = connect(other, behind);
  EXPECT_EQ(legs[0].stream->phase(), timeline_.phase({0, 4}));
}

TEST_F(StreamsTest, DoesNotLetAJobWaitUntilAnotherComesToAPhase) {
  const auto one = reader(1);
  timeline_.swap({0, 8}, phase("other content"));
  StreamWish before = wish(timeline_, one);
  before.until = {0, 8};
  const auto first = connect(one, before);
  StreamWish after = wish(timeline_, one);
  after.from = {0, 8};
  after.after = first[0].stream;
  const auto second = connect(one, after);
  const auto other = reader(2);
  StreamWish there = wish(timeline_, other);
  there.from = {0, 8};
  auto legs = connect(other, there);
  EXPECT_NE(legs[0].stream, second[0].stream);
  EXPECT_EQ(pass(other, legs, {0, 8}), rows_of(8));
}

TEST_F(StreamsTest, LetsALateOneCatchUpByAStreamOfItsOwn) {
  const auto one = reader(1);
  const auto late = reader(2);
  auto ahead = connect(one);
  for (std::uint64_t step = 0; step < 6; ++step) pass(one, ahead, {0, step});
  auto legs = connect(late);
  ASSERT_EQ(legs.size(), 2U);
  EXPECT_EQ(legs[1].from, (job::StepAt{0, 6}));
  EXPECT_EQ(legs[1].stream, ahead[0].stream);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(pass(late, legs, {0, step}), rows_of(step));
    if (step < 6) continue;
    EXPECT_EQ(pass(one, ahead, {0, step}), rows_of(step));
  }
}

TEST_F(StreamsTest, LetsASecondLateOneShareTheCatchingUp) {
  const auto one = reader(1);
  auto ahead = connect(one);
  for (std::uint64_t step = 0; step < 6; ++step) pass(one, ahead, {0, step});
  const auto late = reader(2);
  const auto later = reader(3);
  const auto legs = connect(late);
  const auto same = connect(later);
  ASSERT_EQ(same.size(), 2U);
  EXPECT_EQ(same[0].stream, legs[0].stream);
  EXPECT_EQ(same[1].stream, ahead[0].stream);
}

TEST_F(StreamsTest, DoesNotLetAJobWaitForOneThatIsFarBehind) {
  use(FakeSource::numbered(400));
  timeline_ = Timeline(phase(), 1);
  const auto one = reader(1);
  auto ahead = connect(one);
  for (std::uint64_t step = 0; step < 40; ++step) pass(one, ahead, {0, step});
  const auto behind = reader(2);
  const auto legs = connect(behind);
  ASSERT_EQ(legs.size(), 1U);
  EXPECT_NE(legs[0].stream, ahead[0].stream);
}

TEST_F(StreamsTest, JoinsNothingWhenTheArenaDoesNotFit) {
  const auto one = reader(1);
  auto ahead = connect(one);
  for (std::uint64_t step = 0; step < 6; ++step) pass(one, ahead, {0, step});
  meter_->set_limit(1);
  const auto late = reader(2);
  const auto refused = streams_.connect(late, wish(timeline_, late));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("does not fit"));
  EXPECT_EQ(ahead[0].stream->jobs().size(), 1U);
  for (std::uint64_t step = 6; step < kSteps; ++step) pass(one, ahead, {0, step});
}

TEST_F(StreamsTest, KeepsReplicasApartThatAreInDifferentPassages) {
  const auto roll = std::make_shared<ReplicaRoll>();
  const auto replica = [&](const ReaderPtr& reader, std::uint32_t number, std::uint32_t passage) {
    StreamWish wanted = wish(timeline_, reader);
    wanted.replicas = 2;
    wanted.replica = number;
    wanted.roll = roll;
    wanted.passage = passage;
    roll->came({0, number}, 2, reader->holder(), passage);
    return connect(reader, wanted);
  };
  const auto behind = reader(1);
  const auto ahead = reader(1);
  auto later = replica(ahead, 1, 1);
  auto earlier = replica(behind, 0, 0);
  ASSERT_NE(earlier[0].stream, later[0].stream);
  for (std::uint64_t step = 0; step < kSteps; ++step) pass(behind, earlier, {0, step});
  for (std::uint64_t step = 0; step < kSlots; ++step) pass(ahead, later, {0, step});
  EXPECT_EQ(ahead->poll(*later[0].stream, {0, kSlots}), std::nullopt) << "the other is awaited";
  leave(behind, earlier);
  auto there = replica(behind, 0, 1);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].stream, later[0].stream);
  EXPECT_EQ(pass(behind, there, {0, 0}), rows_of(0));
}

TEST_F(StreamsTest, BringsReplicasTogetherHoweverFarApartTheyAre) {
  const auto roll = std::make_shared<ReplicaRoll>();
  const auto replica = [&](const ReaderPtr& reader, std::uint32_t number) {
    StreamWish wanted = wish(timeline_, reader);
    wanted.replicas = 2;
    wanted.replica = number;
    wanted.roll = roll;
    return connect(reader, wanted);
  };
  const auto first = reader(1);
  const auto second = reader(1);
  auto ahead = replica(first, 0);
  for (std::uint64_t step = 0; step < kSlots; ++step) pass(first, ahead, {0, step});
  EXPECT_EQ(first->poll(*ahead[0].stream, {0, kSlots}), std::nullopt) << "the other is awaited";
  auto legs = replica(second, 1);
  ASSERT_EQ(legs.size(), 1U);
  EXPECT_EQ(legs[0].stream, ahead[0].stream);
  for (std::uint64_t step = 0; step < kSlots; ++step) pass(second, legs, {0, step});
  second->pass(*legs[0].stream, {0, kSlots});
  legs[0].stream->leave(second->holder(), true);
  const auto back = reader(1);
  auto again = replica(back, 1);
  ASSERT_EQ(again.size(), 2U) << "what it has missed, and then the others'";
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(pass(back, again, {0, step}), rows_of(step));
    if (step < kSlots) continue;
    EXPECT_EQ(pass(first, ahead, {0, step}), rows_of(step));
  }
}

TEST_F(StreamsTest, WaitsForNoReplicaThatIsDismissed) {
  const auto first = reader(1);
  StreamWish wanted = wish(timeline_, first);
  wanted.replicas = 2;
  wanted.roll = std::make_shared<ReplicaRoll>();
  auto legs = connect(first, wanted);
  streams_.dismiss(1, {1, 1});  // of another shard
  for (std::uint64_t step = 0; step < kSlots; ++step) pass(first, legs, {0, step});
  EXPECT_EQ(first->poll(*legs[0].stream, {0, kSlots}), std::nullopt);
  streams_.dismiss(1, {0, 1});
  for (std::uint64_t step = kSlots; step < kSteps; ++step) pass(first, legs, {0, step});
}

TEST_F(StreamsTest, TellsWhoIsHeldUpToGoItsOwnWay) {
  const auto fast = reader(1);
  const auto stuck = reader(2);
  auto legs = connect(fast);
  connect(stuck);
  for (std::uint64_t step = 0; step < kSlots; ++step) pass(fast, legs, {0, step});
  EXPECT_EQ(fast->poll(*legs[0].stream, {0, kSlots}), std::nullopt);
  streams_.tick();
  EXPECT_EQ(fast->times_displaced(), 0) << "no time has passed";
  clock_.advance(std::chrono::milliseconds(1000));
  streams_.tick();
  EXPECT_EQ(fast->times_displaced(), 1);
  EXPECT_EQ(stuck->times_displaced(), 0);
}

TEST_F(StreamsTest, GivesASharedRunTheWeightOfAllItsJobs) {
  const auto one = reader(1);
  const auto other = reader(2);
  streams_.set_limits(1, {.weight = 0.5, .workers = 1});
  streams_.set_limits(2, {.weight = 2, .workers = 3});
  const auto first = connect(one);
  const engine::Run& run = *first[0].stream->phase()->run;
  EXPECT_EQ(run.weight(), 0.5);
  EXPECT_EQ(run.process_concurrency(), 1);
  const auto second = connect(other);
  EXPECT_EQ(run.weight(), 2.5);
  EXPECT_EQ(run.process_concurrency(), 4);
  streams_.set_limits(1, {.weight = 1, .workers = 0});
  EXPECT_EQ(run.process_concurrency(), 0) << "one of them has no limit";
  leave(other, second);
  streams_.tick();
  EXPECT_EQ(run.weight(), 1);
}

// Jobs that come, read, jump, stop, are displaced and go, in any order, against what each is owed:
// every step from where it began, or jumped to, once and in order; and no slot is lost by it.
class StreamsModel : public StreamsTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  struct Job {
    ReaderPtr reader;
    std::vector<Leg> legs;
    job::StepAt next;
    std::vector<Reader::Batch> held;
  };
  static job::StepAt settled(job::StepAt at) {
    return at.step < kSteps ? at : job::StepAt{at.epoch + 1, 0};
  }
};

TEST_P(StreamsModel, GivesEachWhatItIsOwedAndKeepsNothing) {
  std::mt19937 random(GetParam());
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  std::vector<Job> jobs;
  std::vector<std::shared_ptr<SlotPool>> pools;
  const auto note = [&](const std::vector<Leg>& legs) {
    for (const Leg& leg : legs) pools.push_back(leg.stream->pool());
  };
  std::uint64_t tag = 0;
  const auto go = [&](Job& job) {
    for (auto& batch : job.held) job.reader->release(batch);
    job.held.clear();
    leave(job.reader, job.legs);
  };
  for (int turn = 0; turn < 600; ++turn) {
    if (jobs.size() < 2 || (jobs.size() < 6 && below(12) == 0)) {
      Job job{.reader = reader(++tag), .legs = {}, .next = {0, below(8)}, .held = {}};
      if (!jobs.empty() && below(2) == 0) job.next = jobs[below(jobs.size())].next;
      job.legs = connect(job.reader, job.next);
      note(job.legs);
      jobs.push_back(std::move(job));
      continue;
    }
    Job& job = jobs[below(static_cast<std::uint32_t>(jobs.size()))];
    const auto advance = [&] {
      while (job.legs.size() > 1 && job.legs[1].from <= job.next) {
        job.legs.front().stream->leave(job.reader->holder());
        job.legs.erase(job.legs.begin());
      }
    };
    switch (below(16)) {
      case 0:
        go(job);
        jobs.erase(jobs.begin() + (&job - jobs.data()));
        break;
      case 1: {  // a seek, however far
        const job::StepAt to = settled({job.next.epoch + below(2), below(kSteps)});
        advance();
        if (to < job.next || job.legs.size() > 1 ||
            !job.legs.front().stream->jump(job.reader->holder(), to)) {
          leave(job.reader, job.legs);
          job.legs = connect(job.reader, to);
          note(job.legs);
        }
        job.next = to;
        break;
      }
      case 2: {  // its own way, as one that is held up
        const auto legs = connect(job.reader, job.next);
        leave(job.reader, job.legs);
        job.legs = legs;
        note(job.legs);
        break;
      }
      case 3:
        (void)job.legs.front().stream->hold();
        job.legs.front().stream->go_on();
        break;
      case 4:
        clock_.advance(std::chrono::milliseconds(300));
        streams_.tick();
        break;
      default: {
        if (!job.held.empty() && (job.held.size() == kJobCredits || below(3) == 0)) {
          job.reader->release(job.held.front());
          job.held.erase(job.held.begin());
        }
        if (job.held.size() == kJobCredits) break;
        advance();
        auto batch = job.reader->poll(*job.legs.front().stream, job.next);
        if (!batch) break;
        EXPECT_EQ(batch->text, rows_of(job.next.step));
        job.held.push_back(std::move(*batch));
        job.next = settled({job.next.epoch, job.next.step + 1});
        break;
      }
    }
  }
  // Whoever is alone is never stuck, whatever was before.
  while (jobs.size() > 1) {
    go(jobs.back());
    jobs.pop_back();
  }
  Job& last = jobs.front();
  for (auto& batch : last.held) last.reader->release(batch);
  last.held.clear();
  for (std::uint64_t step = 0; step < 2 * kSteps; ++step) {
    EXPECT_EQ(pass(last.reader, last.legs, last.next), rows_of(last.next.step));
    last.next = settled({last.next.epoch, last.next.step + 1});
  }
  go(last);
  for (const auto& pool : pools) expect_idle(pool);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamsModel, ::testing::Range(1U, 25U));

}  // namespace
}  // namespace spdld::stream

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
  StreamWish wish(const ReaderPtr& reader, const Span& span) {
    return {.span = span,
            .job = reader->job,
            .credits = kJobCredits,
            .open_epochs = 100,
            .meter = meter_};
  }
  StreamWish wish(const ReaderPtr& reader, job::StepAt from = {}) {
    return wish(reader, span(phase_, from));
  }
  std::vector<Leg> connect(const ReaderPtr& reader, const StreamWish& wish) {
    auto legs = streams_.connect(reader, wish);
    EXPECT_TRUE(legs) << legs.error().message();
    return legs ? *legs : std::vector<Leg>();
  }
  std::vector<Leg> connect(const ReaderPtr& reader, job::StepAt from = {}) {
    return connect(reader, wish(reader, from));
  }
  static void leave(const ReaderPtr& reader, const std::vector<Leg>& legs) {
    for (const Leg& leg : legs) leg.stream->leave(reader->holder());
  }
  // The batch `at` of what the reader has wished for.
  static std::string pass(const ReaderPtr& reader, std::vector<Leg>& legs, Index at) {
    while (legs.size() > 1 && legs[1].from <= at) {
      legs.front().stream->leave(reader->holder());
      legs.erase(legs.begin());
    }
    const Leg& leg = legs.front();
    return reader->pass(*leg.stream, at - leg.from + leg.first);
  }
  // Passes [from, until), of the epoch that begins with batch 0.
  static void expect_steps(const ReaderPtr& reader, std::vector<Leg>& legs, Index from,
                           Index until) {
    for (Index at = from; at < until; ++at) EXPECT_EQ(pass(reader, legs, at), rows_of(at));
  }

  Streams streams_{executor_, arenas_, delivery::ArenaKind::kMemfd, clock_};
  pipeline::PhasePtr phase_;
  void SetUp() override {
    StreamsFixture::SetUp();
    phase_ = phase();
  }
};

TEST_F(StreamsTest, LetsJobsShareThatNeedTheSameRowsOfTheSameContent) {
  const auto one = reader(1);
  const auto other = reader(2);
  const auto first = connect(one);
  // A phase of its own, alike in content and seed.
  const auto second = connect(other, wish(other, span(phase())));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(first[0].stream, second[0].stream);
}

TEST_F(StreamsTest, SharesNothingBetweenOthers) {
  const auto one = reader(1);
  const auto first = connect(one);
  const auto differs = [&](const Span& wanted, auto change) {
    const auto other = reader(2);
    StreamWish changed = wish(other, wanted);
    change(changed);
    const auto legs = connect(other, changed);
    EXPECT_NE(legs.back().stream, first[0].stream);
    leave(other, legs);
  };
  const auto nothing = [](StreamWish&) {};
  differs(span(phase("other content")), nothing);
  differs(span(phase("content", 2)), nothing);
  differs(Span(phase_, {.shards = 2}, 0), nothing);
  differs(Span(phase_, {.step = 1, .position = 3}, 0), nothing);
  differs(span(phase_, {1, 0}), nothing);
  differs(span(phase_), [](StreamWish& wanted) { wanted.uid = 7; });
  differs(span(phase_), [](StreamWish& wanted) { wanted.replicas = 2; });
}

TEST_F(StreamsTest, LetsAWishBeginInTheMidstOfAStream) {
  const auto one = reader(1);
  auto first = connect(one);
  expect_steps(one, first, 0, 3);
  const auto other = reader(2);
  auto second = connect(other, {0, 3});
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].stream, first[0].stream);
  EXPECT_EQ(second[0].first, 3U);
  for (Index at = 0; at < kSteps - 3; ++at) {
    EXPECT_EQ(pass(other, second, at), rows_of(3 + at));
    EXPECT_EQ(pass(one, first, 3 + at), rows_of(3 + at));
  }
}

TEST_F(StreamsTest, EndsAWishThatBeginsInTheMidstOfAStreamWhereItIsToEnd) {
  const auto one = reader(1);
  auto first = connect(one);
  expect_steps(one, first, 0, 3);
  const auto other = reader(2);
  StreamWish brief = wish(other, {0, 3});
  brief.until = 4;
  auto second = connect(other, brief);
  ASSERT_EQ(second[0].stream, first[0].stream);
  for (Index at = 0; at < 4; ++at) {
    EXPECT_EQ(pass(other, second, at), rows_of(3 + at));
    EXPECT_EQ(pass(one, first, 3 + at), rows_of(3 + at));
  }
  const auto left = second[0].stream->readable(other->holder());
  EXPECT_TRUE(left.to_its_end);
  EXPECT_EQ(left.batches, 0U);
  for (Index at = 7; at < kSteps; ++at) EXPECT_EQ(pass(one, first, at), rows_of(at));
}

TEST_F(StreamsTest, LetsAStreamBeginInTheMidstOfAWish) {
  const auto one = reader(1);
  auto first = connect(one, {0, 4});
  const auto other = reader(2);
  auto second = connect(other);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[1].stream, first[0].stream);
  EXPECT_EQ(second[1].from, 4U);
  EXPECT_EQ(second[1].first, 0U);
  for (Index at = 0; at < kSteps; ++at) {
    EXPECT_EQ(pass(other, second, at), rows_of(at));
    if (at < 4) continue;
    EXPECT_EQ(pass(one, first, at - 4), rows_of(at));
  }
}

TEST_F(StreamsTest, LetsAWishThatEndsWhereAStreamBeginsGoItsOwnWay) {
  const auto one = reader(1);
  const auto first = connect(one, {0, 4});
  const auto other = reader(2);
  StreamWish brief = wish(other);
  brief.until = 4;
  const auto second = connect(other, brief);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_NE(second[0].stream, first[0].stream);
}

TEST_F(StreamsTest, SharesNoStreamOfOnePhaseWhereTheNextOneBegins) {
  const auto one = reader(1);
  StreamWish until = wish(one);
  until.until = 4;
  auto first = connect(one, until);
  expect_steps(one, first, 0, 3);
  const auto other = reader(2);
  const auto next = phase("other content");
  const auto legs = connect(other, wish(other, span(next, {0, 4})));
  EXPECT_EQ(legs[0].stream->phase(), next);
}

TEST_F(StreamsTest, DoesNotLetAJobWaitUntilAnotherComesToAPhase) {
  const auto one = reader(1);
  const auto next = phase("other content");
  StreamWish before = wish(one);
  before.until = 8;
  const auto first = connect(one, before);
  StreamWish after = wish(one, span(next, {0, 8}));
  after.after = first[0].stream;
  const auto second = connect(one, after);
  const auto other = reader(2);
  auto legs = connect(other, wish(other, span(next, {0, 8})));
  EXPECT_NE(legs[0].stream, second[0].stream);
  EXPECT_EQ(pass(other, legs, 0), rows_of(8));
}

TEST_F(StreamsTest, GivesTheStreamThatFollowsTheSlotsOfTheOneBefore) {
  const auto one = reader(1);
  StreamWish before = wish(one);
  before.until = 6;
  auto legs = connect(one, before);
  const std::uint64_t used = meter_->used();
  StreamWish after = wish(one, {3, 2});  // it skips
  after.turn = 6;
  after.after = legs[0].stream;
  after.reuse = legs[0].stream->pool();
  for (Leg& leg : connect(one, after)) legs.push_back({6 + leg.from, leg.stream, leg.first});
  ASSERT_EQ(legs.size(), 2U);
  EXPECT_EQ(legs[1].stream->pool(), legs[0].stream->pool());
  EXPECT_EQ(meter_->used(), used);
  settle(*legs[0].stream);
  EXPECT_EQ(legs[1].stream->readable(one->holder()).batches, 0U) << "the first one needs them all";
  expect_steps(one, legs, 0, 6);
  for (Index at = 6; at < 6 + 2 * kSteps; ++at)
    EXPECT_EQ(pass(one, legs, at), rows_of((at - 6 + 2) % kSteps));
}

// A job that stops reading must stop no other job for ever: of two streams with the same slots
// nobody could tell.
TEST_F(StreamsTest, LetsNoOtherJobReadAStreamWhoseSlotsServeTheNextOneToo) {
  const auto one = reader(1);
  StreamWish before = wish(one);
  before.until = 6;
  const auto first = connect(one, before);
  StreamWish after = wish(one, {0, 9});
  after.turn = 6;
  after.after = first[0].stream;
  after.reuse = first[0].stream->pool();
  const auto second = connect(one, after);
  ASSERT_EQ(second[0].stream->pool(), first[0].stream->pool());
  const auto other = reader(2);
  const auto legs = connect(other);
  EXPECT_NE(legs[0].stream, first[0].stream);
}

TEST_F(StreamsTest, GivesTheStreamThatFollowsSlotsOfItsOwnWhereAnotherJobReadsTheOneBefore) {
  const auto one = reader(1);
  StreamWish before = wish(one);
  before.until = 6;
  const auto first = connect(one, before);
  const auto other = reader(2);
  ASSERT_EQ(connect(other)[0].stream, first[0].stream);
  StreamWish after = wish(one, {0, 9});
  after.turn = 6;
  after.after = first[0].stream;
  after.reuse = first[0].stream->pool();
  EXPECT_NE(connect(one, after)[0].stream->pool(), first[0].stream->pool());
}

TEST_F(StreamsTest, LetsALateOneCatchUpByAStreamOfItsOwn) {
  const auto one = reader(1);
  const auto late = reader(2);
  auto ahead = connect(one);
  expect_steps(one, ahead, 0, 6);
  auto legs = connect(late);
  ASSERT_EQ(legs.size(), 2U);
  EXPECT_EQ(legs[1].from, 6U);
  EXPECT_EQ(legs[1].stream, ahead[0].stream);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(pass(late, legs, step), rows_of(step));
    if (step < 6) continue;
    EXPECT_EQ(pass(one, ahead, step), rows_of(step));
  }
}

TEST_F(StreamsTest, LetsASecondLateOneShareTheCatchingUp) {
  const auto one = reader(1);
  auto ahead = connect(one);
  expect_steps(one, ahead, 0, 6);
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
  phase_ = phase();
  const auto one = reader(1);
  auto ahead = connect(one);
  expect_steps(one, ahead, 0, 40);
  const auto behind = reader(2);
  const auto legs = connect(behind);
  ASSERT_EQ(legs.size(), 1U);
  EXPECT_NE(legs[0].stream, ahead[0].stream);
}

TEST_F(StreamsTest, JoinsNothingWhenTheArenaDoesNotFit) {
  const auto one = reader(1);
  auto ahead = connect(one);
  expect_steps(one, ahead, 0, 6);
  meter_->set_limit(1);
  const auto late = reader(2);
  const auto refused = streams_.connect(late, wish(late));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("does not fit"));
  EXPECT_EQ(ahead[0].stream->jobs().size(), 1U);
  expect_steps(one, ahead, 6, kSteps);
}

TEST_F(StreamsTest, DoesNotLetAJobWaitForOneThatIsYetToComeToItsBegin) {
  use(FakeSource::numbered(400));
  phase_ = phase();
  const auto one = reader(1);
  const auto ahead = connect(one, {0, 40});
  const auto behind = reader(2);
  const auto legs = connect(behind);
  ASSERT_EQ(legs.size(), 1U);
  EXPECT_NE(legs[0].stream, ahead[0].stream);
}

// One replica's loop has sought back to the first step, the other one's does not yet.
TEST_F(StreamsTest, BringsReplicasTogetherAtEqualTurnsAlone) {
  const auto presence = std::make_shared<ReplicaPresence>();
  const auto replica = [&](const ReaderPtr& reader, std::uint32_t number, job::Turn turn) {
    StreamWish wanted = wish(reader);
    wanted.replicas = 2;
    wanted.replica = number;
    wanted.presence = presence;
    wanted.turn = turn;
    return connect(reader, wanted);
  };
  const auto behind = reader(1);
  const auto ahead = reader(1);
  presence->came({0, 0}, 2, behind->holder());
  presence->came({0, 1}, 2, ahead->holder());
  auto later = replica(ahead, 1, kSteps);
  auto earlier = replica(behind, 0, 0);
  ASSERT_NE(earlier[0].stream, later[0].stream);
  auto there = replica(behind, 0, kSteps);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].stream, later[0].stream);
  expect_steps(ahead, later, 0, kSlots);
  EXPECT_EQ(ahead->poll(*later[0].stream, kSlots), std::nullopt) << "the other is awaited";
  expect_steps(behind, earlier, 0, kSteps);
  leave(behind, earlier);
  EXPECT_EQ(pass(behind, there, 0), rows_of(0));
  EXPECT_EQ(pass(ahead, later, kSlots), rows_of(kSlots));
}

// A seek ahead that both are told of: the first one goes there in the stream that it reads.
TEST_F(StreamsTest, BringsReplicasTogetherWhereOneHasJumped) {
  const auto presence = std::make_shared<ReplicaPresence>();
  const auto replica = [&](const ReaderPtr& reader, std::uint32_t number, job::StepAt from,
                           job::Turn turn) {
    StreamWish wanted = wish(reader, from);
    wanted.replicas = 2;
    wanted.replica = number;
    wanted.presence = presence;
    wanted.turn = turn;
    return connect(reader, wanted);
  };
  const auto first = reader(1);
  const auto second = reader(1);
  auto jumps = replica(first, 0, {}, 0);
  auto leaves = replica(second, 1, {}, 0);
  ASSERT_EQ(jumps[0].stream, leaves[0].stream);
  for (Index at = 0; at < 2; ++at) {
    EXPECT_EQ(pass(first, jumps, at), rows_of(at));
    EXPECT_EQ(pass(second, leaves, at), rows_of(at));
  }
  ASSERT_TRUE(jumps[0].stream->jump(first->holder(), 12, 2));
  leave(second, leaves);
  auto there = replica(second, 1, {0, 12}, 2);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there[0].stream, jumps[0].stream);
  for (Index at = 12; at < kSteps; ++at) {
    EXPECT_EQ(pass(first, jumps, at), rows_of(at));
    EXPECT_EQ(pass(second, there, at - 12), rows_of(at));
  }
}

// One of them may be sent elsewhere before the other is, and need slots that the next stream has.
TEST_F(StreamsTest, GivesReplicasSlotsOfTheirOwnInTheStreamThatFollows) {
  const auto one = reader(1);
  StreamWish before = wish(one);
  before.replicas = 2;
  before.until = 6;
  const auto first = connect(one, before);
  StreamWish after = wish(one, {0, 9});
  after.replicas = 2;
  after.turn = 6;
  after.after = first[0].stream;
  after.reuse = first[0].stream->pool();
  EXPECT_NE(connect(one, after)[0].stream->pool(), first[0].stream->pool());
}

// A seek back: what they read until then comes once more, many turns later.
TEST_F(StreamsTest, BringsNoReplicaWhereTheOtherOneIsLongBeforeIt) {
  const auto replica = [&](const ReaderPtr& reader, std::uint32_t number, job::StepAt from,
                           job::Turn turn) {
    StreamWish wanted = wish(reader, from);
    wanted.replicas = 2;
    wanted.replica = number;
    wanted.turn = turn;
    return connect(reader, wanted);
  };
  const auto stays = reader(1);
  const auto goes = reader(1);
  auto legs = replica(stays, 0, {}, 0);
  ASSERT_TRUE(legs[0].stream->jump(stays->holder(), 12, 0));
  auto back = replica(goes, 1, {0, 3}, 5);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_NE(back[0].stream, legs[0].stream);
}

TEST_F(StreamsTest, BringsReplicasTogetherHoweverFarApartTheyAre) {
  const auto presence = std::make_shared<ReplicaPresence>();
  const auto replica = [&](const ReaderPtr& reader, std::uint32_t number) {
    StreamWish wanted = wish(reader);
    wanted.replicas = 2;
    wanted.replica = number;
    wanted.presence = presence;
    return connect(reader, wanted);
  };
  const auto first = reader(1);
  const auto second = reader(1);
  auto ahead = replica(first, 0);
  expect_steps(first, ahead, 0, kSlots);
  EXPECT_EQ(first->poll(*ahead[0].stream, kSlots), std::nullopt) << "the other is awaited";
  auto legs = replica(second, 1);
  ASSERT_EQ(legs.size(), 1U);
  EXPECT_EQ(legs[0].stream, ahead[0].stream);
  expect_steps(second, legs, 0, kSlots);
  second->pass(*legs[0].stream, kSlots);
  legs[0].stream->leave(second->holder(), true);
  const auto back = reader(1);
  auto again = replica(back, 1);
  ASSERT_EQ(again.size(), 2U) << "what it has missed, and then the others'";
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(pass(back, again, step), rows_of(step));
    if (step < kSlots) continue;
    EXPECT_EQ(pass(first, ahead, step), rows_of(step));
  }
}

TEST_F(StreamsTest, WaitsForNoReplicaThatIsDismissed) {
  const auto first = reader(1);
  StreamWish wanted = wish(first);
  wanted.replicas = 2;
  wanted.presence = std::make_shared<ReplicaPresence>();
  auto legs = connect(first, wanted);
  streams_.dismiss(1, {1, 1});  // of another shard
  expect_steps(first, legs, 0, kSlots);
  EXPECT_EQ(first->poll(*legs[0].stream, kSlots), std::nullopt);
  streams_.dismiss(1, {0, 1});
  expect_steps(first, legs, kSlots, kSteps);
}

TEST_F(StreamsTest, TellsWhoIsHeldUpToGoItsOwnWay) {
  const auto fast = reader(1);
  const auto stuck = reader(2);
  auto legs = connect(fast);
  connect(stuck);
  expect_steps(fast, legs, 0, kSlots);
  EXPECT_EQ(fast->poll(*legs[0].stream, kSlots), std::nullopt);
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

// Jobs that come, read, jump, are sent elsewhere, stop, are displaced and go, in any order, against
// what each is owed: a batch of the right step at each turn; and no slot is lost by it.
class StreamsModel : public StreamsTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  // A step, counted through epochs.
  using Place = std::uint64_t;
  static job::StepAt step_at(Place place) { return {place / kSteps, place % kSteps}; }

  struct Job {
    ReaderPtr reader;
    std::vector<Leg> legs = {};  // `from` is a turn
    job::Turn turn = 0;
    std::map<job::Turn, Place> places = {};  // from which turn on it is there
    std::vector<Reader::Batch> held = {};

    Place place() const {
      const auto [from, begin] = *std::prev(places.upper_bound(turn));
      return begin + (turn - from);
    }
    Index index(const Leg& leg, job::Turn of) const { return of - leg.from + leg.first; }
    bool is_to_go_elsewhere() const { return places.rbegin()->first > turn; }
  };
  void add_legs(Job& job, StreamWish wanted, job::Turn from) {
    wanted.turn = from;
    for (Leg& leg : connect(job.reader, wanted)) {
      pools_.push_back(leg.stream->pool());
      job.legs.push_back({from + leg.from, std::move(leg.stream), leg.first});
    }
  }
  // Reads there from its turn on, and nothing else.
  void go_to(Job& job, Place place) {
    std::vector<Leg> before = std::exchange(job.legs, {});
    job.places = {{job.turn, place}};
    add_legs(job, wish(job.reader, step_at(place)), job.turn);
    leave(job.reader, before);
  }
  // Reads elsewhere from a turn that lies ahead, as by an edit.
  void edit(Job& job, job::Turn at, Place place) {
    if (job.is_to_go_elsewhere() || job.legs.back().from >= at) return;
    const Leg& last = job.legs.back();
    StreamWish wanted = wish(job.reader, step_at(place));
    wanted.after = last.stream;
    wanted.reuse = last.stream->pool();
    ASSERT_TRUE(last.stream->set_until(job.reader->holder(), job.index(last, at)));
    add_legs(job, wanted, at);
    job.places[at] = place;
  }
  static void advance(Job& job) {
    while (job.legs.size() > 1 && job.legs[1].from <= job.turn) {
      job.legs.front().stream->leave(job.reader->holder());
      job.legs.erase(job.legs.begin());
    }
  }
  static bool jump(Job& job, Place place) {
    if (job.legs.size() > 1) return false;
    Leg& leg = job.legs.front();
    const auto to = leg.stream->span().index_of(step_at(place));
    if (!to || !leg.stream->jump(job.reader->holder(), *to, job.turn)) return false;
    leg.from = job.turn;
    leg.first = *to;
    job.places = {{job.turn, place}};
    return true;
  }
  static void release_all(Job& job) {
    for (auto& batch : job.held) job.reader->release(batch);
    job.held.clear();
  }
  static void go(Job& job) {
    release_all(job);
    leave(job.reader, job.legs);
  }

  std::vector<std::shared_ptr<SlotPool>> pools_;
};

TEST_P(StreamsModel, GivesEachWhatItIsOwedAndKeepsNothing) {
  std::mt19937 random(GetParam());
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  std::vector<Job> jobs;
  JobTag tag = 0;
  for (int action = 0; action < 600; ++action) {
    if (jobs.size() < 2 || (jobs.size() < 6 && below(12) == 0)) {
      Job job{.reader = reader(++tag)};
      Place place = below(8);
      if (!jobs.empty() && below(2) == 0) place = jobs[below(jobs.size())].place();
      go_to(job, place);
      jobs.push_back(std::move(job));
      continue;
    }
    Job& job = jobs[below(jobs.size())];
    switch (below(17)) {
      case 0:
        go(job);
        jobs.erase(jobs.begin() + (&job - jobs.data()));
        break;
      case 1: {  // a seek, however far
        const Place to = (step_at(job.place()).epoch + below(2)) * kSteps + below(kSteps);
        advance(job);
        if (to < job.place() || !jump(job, to)) go_to(job, to);
        break;
      }
      case 2:  // its own way, as one that is held up
        if (!job.is_to_go_elsewhere()) go_to(job, job.place());
        break;
      case 3:
        (void)job.legs.front().stream->hold();
        job.legs.front().stream->go_on();
        break;
      case 4:
        clock_.advance(std::chrono::milliseconds(300));
        streams_.tick();
        break;
      case 5:
        edit(job, job.turn + 1 + below(6), step_at(job.place()).epoch * kSteps + below(2 * kSteps));
        break;
      default: {
        if (!job.held.empty() && (job.held.size() == kJobCredits || below(3) == 0)) {
          job.reader->release(job.held.front());
          job.held.erase(job.held.begin());
        }
        if (job.held.size() == kJobCredits) break;
        advance(job);
        const Leg& leg = job.legs.front();
        auto batch = job.reader->poll(*leg.stream, job.index(leg, job.turn));
        if (!batch) break;
        EXPECT_EQ(batch->text, rows_of(step_at(job.place()).step));
        job.held.push_back(std::move(*batch));
        ++job.turn;
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
  release_all(last);
  for (std::uint64_t i = 0; i < 2 * kSteps; ++i, ++last.turn)
    EXPECT_EQ(pass(last.reader, last.legs, last.turn), rows_of(step_at(last.place()).step));
  go(last);
  for (const auto& pool : pools_) expect_idle(pool);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamsModel, ::testing::Range(1U, 25U));

}  // namespace
}  // namespace spdld::stream

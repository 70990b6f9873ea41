// SPDX-License-Identifier: Apache-2.0
#include "spdld/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/client/fake_daemon.h"

namespace spdld {
namespace {

using std::chrono::milliseconds;
using test::FakeDaemon;
using test::options_for;
using test::value_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Loader open(const FakeDaemon& daemon) { return Loader::open(options_for(daemon)); }

void expect_batch(const std::optional<Batch>& batch, std::uint64_t epoch, std::uint64_t step) {
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->epoch(), epoch);
  EXPECT_EQ(batch->step(), step);
  const TensorView& image = (*batch)["image"];
  ASSERT_EQ(image.bytes % 4096, 0u);
  for (std::uint64_t i = 0; i < image.bytes; i += 1024) {
    ASSERT_EQ(static_cast<std::uint8_t>(image.data[i]), value_of(epoch, step));
  }
  EXPECT_EQ(batch->indices()[1], static_cast<std::int64_t>(step * batch->rows() + 1));
}

template <typename E, typename F>
std::string thrown_message(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "threw something else: " << other.what();
    return "";
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}

TEST(Loader, ReadsEpochAfterEpoch) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader.epoch(), epoch);
    for (std::uint64_t step = 0; step < 5; ++step) expect_batch(loader.next(), epoch, step);
    EXPECT_FALSE(loader.next());
  }
  EXPECT_EQ(loader.stats().batches, 15u);
  EXPECT_EQ(loader.stats().held, 0u);
}

TEST(Loader, TellsWhatTheDaemonToldIt) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  EXPECT_EQ(loader.steps_per_epoch(), 5u);
  EXPECT_EQ(loader.items(), 20u);
  EXPECT_EQ(loader.batch_size(), 4u);
  EXPECT_EQ(loader.pipeline_version(), 3u);
  EXPECT_THAT(loader.classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(loader.server_stats(), "{\"batches\": 1}");
  EXPECT_EQ(loader.fingerprint(), "p order 0rder seed 42 items 20 shards 1 batch 4");
  expect_batch(loader.next(), 0, 0);
}

TEST(Loader, AsksWhatTheRowsOfABatchAreCalled) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->order_digest(), "0rder");
  EXPECT_THAT(loader.uris(*batch), ElementsAre("0rder/0", "0rder/1", "0rder/2", "0rder/3"));
  const std::vector<std::int64_t> many(5000, 7);
  EXPECT_THAT(loader.uris(many, "d"), Each("d/7"));
  EXPECT_EQ(loader.uris(many, "d").size(), 5000u);
  EXPECT_THAT(loader.uris({}, "d"), IsEmpty());
}

TEST(Loader, GivesTheFieldsOfABatch) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->rows(), 4u);
  EXPECT_EQ(batch->pipeline_version(), 3u);
  EXPECT_EQ(batch->fields().size(), 5u);
  const TensorView& image = (*batch)["image"];
  EXPECT_THAT(image.shape(), ElementsAre(4, 32768));
  EXPECT_FALSE(image.copied);
  const TensorView& label = (*batch)["label"];
  EXPECT_THAT(label.shape(), ElementsAre(4));
  EXPECT_TRUE(label.copied);
  EXPECT_THAT(batch->indices(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch->valid(), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(batch->text("caption", 3), "row 3");
  EXPECT_EQ(thrown_message<PipelineError>([&] { (void)(*batch)["lable"]; }),
            "the batch has no field 'lable'; it has image, label, caption, __index, __valid");
  thrown_message<PipelineError>([&] { (void)batch->text("caption", 4); });
  thrown_message<PipelineError>([&] { (void)batch->text("label", 0); });
}

TEST(Loader, EndsWithTheJobsLastEpoch) {
  FakeDaemon daemon({.steps = 2, .epochs = 1});
  Loader loader = open(daemon);
  loader.next();
  loader.next();
  EXPECT_FALSE(loader.next());
  EXPECT_FALSE(loader.next());
  EXPECT_FALSE(loader.next());
  loader.set_epoch(0);
  expect_batch(loader.next(), 0, 0);
}

TEST(Loader, StateIsThePositionAfterTheLastBatchHandedOut) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  loader.next();
  const auto kept = loader.next();
  const Cursor cursor = loader.state();
  EXPECT_EQ(cursor, (Cursor{.order_digest = "0rder",
                            .seed = 42,
                            .epoch = 0,
                            .position = 8,
                            .step = 2,
                            .run = test::kFakeRun,
                            .turn = 2}));
  auto options = options_for(daemon);
  options.cursor = cursor;
  Loader resumed = Loader::open(options);
  EXPECT_EQ(resumed.state(), cursor) << "before it has attached, too";
  expect_batch(resumed.next(), 0, 2);
}

TEST(Loader, LoadsAStateAtAnyTime) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  loader.next();
  Cursor cursor = loader.state();
  loader.next();
  loader.next();
  loader.load_state(cursor);
  expect_batch(loader.next(), 0, 1);
  cursor.order_digest = "an0ther";
  EXPECT_THAT(thrown_message<PipelineError>([&] { loader.load_state(cursor); }),
              AllOf(HasSubstr("an0ther"), HasSubstr("0rder")));
  cursor.order_digest = "0rder";
  cursor.seed = 1;
  EXPECT_THAT(thrown_message<PipelineError>([&] { loader.load_state(cursor); }),
              HasSubstr("seed 1"));
  expect_batch(loader.next(), 0, 2);
}

TEST(Loader, RefusesACursorOfAnotherOrderAtAttach) {
  FakeDaemon daemon;
  auto options = options_for(daemon);
  options.cursor =
      Cursor{.order_digest = "an0ther", .seed = 42, .epoch = 1, .position = 0, .step = 0};
  Loader loader = Loader::open(options);
  EXPECT_THAT(thrown_message<PipelineError>([&] { loader.next(); }), HasSubstr("another order"));
}

TEST(Loader, SeeksToAnEpochAndReleasesUnseenWhatWasPrefetched) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  loader.next();
  loader.set_epoch(7);
  EXPECT_EQ(loader.epoch(), 7u);
  for (std::uint64_t step = 0; step < 20; ++step) expect_batch(loader.next(), 7, step);
  loader.set_epoch(3);
  loader.set_epoch(4);
  expect_batch(loader.next(), 4, 0);
  EXPECT_EQ(daemon.service().bad_releases, 0);
}

TEST(Loader, KeepsWhatWasPrefetchedWhenItIsThereAlready) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  loader.set_epoch(2);
  expect_batch(loader.next(), 2, 0);
  while (loader.next()) {
  }
  loader.set_epoch(3);
  expect_batch(loader.next(), 3, 0);
}

TEST(Loader, PassesOnThatASeekWasRefusedAndGoesOn) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  loader.next();
  loader.set_epoch(666);
  EXPECT_EQ(thrown_message<PipelineError>([&] { loader.next(); }), "there is no epoch 666");
  loader.set_epoch(1);
  expect_batch(loader.next(), 1, 0);
}

TEST(Loader, FollowsTheJobWhenItIsMoved) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  loader.next();
  daemon.run([](test::FakeService& service) {
    service.move_all({.epoch = 5, .position = 40, .step = 10});
  });
  std::optional<Batch> batch;
  do {
    batch = loader.next();
  } while (batch && batch->epoch() == 0);
  expect_batch(batch, 5, 10);
}

TEST(Loader, KeepsItsCursorWhereTheDaemonResetsByItself) {
  FakeDaemon daemon({.steps = 100});
  auto options = options_for(daemon);
  options.prefetch = 2;
  Loader loader = Loader::open(options);
  std::vector<Batch> held;
  held.push_back(*loader.next());
  daemon.run([](test::FakeService& service) {
    service.move_all({.epoch = 5, .position = 40, .step = 10});
  });
  held.push_back(*loader.next());
  const Cursor before = loader.state();
  EXPECT_EQ(before.turn, 2u);
  thrown_message<LeaseError>([&] { loader.next(); });  // the Reset was read by then
  EXPECT_EQ(loader.state(), before);
  held.clear();
  expect_batch(loader.next(), 5, 10);
  EXPECT_EQ(loader.state().turn, 3u);
}

TEST(Loader, AnEpochsEndLeavesTheTurn) {
  FakeDaemon daemon({.steps = 2});
  Loader loader = open(daemon);
  loader.next();
  loader.next();
  EXPECT_EQ(loader.state().turn, 2u);
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(loader.state().epoch, 1u);
  EXPECT_EQ(loader.state().turn, 2u);
  loader.next();
  EXPECT_EQ(loader.state().turn, 3u);
}

TEST(Loader, AttachesAgainWithRunBranchAndTurnOfItsLastBatch) {
  FakeDaemon daemon({.steps = 40});
  daemon.run([](test::FakeService& service) { service.begin_branch(); });
  Loader loader = open(daemon);
  loader.next();
  daemon.stop();
  daemon.start();
  Cursor last;
  do {  // what was prefetched is still good
    last = loader.state();
    loader.next();
  } while (loader.stats().reconnects == 0);
  EXPECT_EQ(last.branch, test::kFakeBranch);
  daemon.run([&](test::FakeService& service) {
    ASSERT_EQ(service.attaches.size(), 1u);
    EXPECT_EQ(service.attaches[0].in_run,
              (delivery::RunTurn{test::kFakeRun, test::kFakeBranch, last.turn}));
  });
  EXPECT_EQ(loader.state().turn, last.turn + 1);
}

TEST(Loader, TakesTheBranchOfARunWithItsFirstBatch) {
  FakeDaemon daemon;
  daemon.run([](test::FakeService& service) { service.begin_branch(); });
  Loader loader = open(daemon);
  EXPECT_EQ(loader.steps_per_epoch(), 5u);
  EXPECT_EQ(loader.state().branch, 0u);
  loader.next();
  EXPECT_EQ(loader.state().branch, test::kFakeBranch);
}

TEST(Loader, TellsThatItsCallerWasHandedTheBatchesThatAsk) {
  FakeDaemon daemon({.steps = 4});
  daemon.run([](test::FakeService& service) { service.turns_to_tell = {1, 5}; });
  Loader loader = open(daemon);
  const auto told = [&] {
    (void)loader.server_stats();  // answered after all that was said before
    std::vector<std::uint64_t> turns;
    daemon.run([&](test::FakeService& service) { turns = service.handed_turns; });
    return turns;
  };
  loader.next();
  EXPECT_THAT(told(), IsEmpty()) << "batch 1 waits in the socket";
  loader.next();
  EXPECT_THAT(told(), ElementsAre(2));
  loader.next();
  loader.next();
  EXPECT_FALSE(loader.next());
  loader.next();
  EXPECT_THAT(told(), ElementsAre(2));
  loader.next();
  EXPECT_THAT(told(), ElementsAre(2, 6));
}

TEST(Loader, TellsTheDaemonHowItsLoopFares) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  loader.mapped(milliseconds(1500));
  // It is told at first, and then about once a second.
  delivery::WaitedNotice told;
  do {
    while (!loader.next()) continue;
    daemon.run([&](test::FakeService& service) {
      if (!service.waited_notices.empty()) told = service.waited_notices.back();
    });
  } while (told.steps == 0 || told.between == milliseconds(0));
  EXPECT_LE(told.steps, loader.stats().batches);
  EXPECT_LE(told.between, loader.stats().between);
  EXPECT_EQ(told.mapped, milliseconds(1500));
  EXPECT_GE(told.waits, 1U) << "for the first one";
  const std::uint64_t are_over =
      std::accumulate(told.waits_by_length.begin(), told.waits_by_length.end(), std::uint64_t{0});
  EXPECT_LE(are_over, told.waits);
  EXPECT_LE(told.waits, are_over + 1) << "one at most goes on";
}

TEST(Loader, SharesItsTimeBetweenWaitsAndTheCallersOwnWork) {
  FakeDaemon daemon;
  const auto begun = std::chrono::steady_clock::now();
  Loader loader = open(daemon);
  const auto between_behind = [&](bool with_batch) {
    const auto before = loader.stats().between;
    EXPECT_EQ(loader.next().has_value(), with_batch);
    return loader.stats().between - before;
  };
  EXPECT_EQ(between_behind(true), std::chrono::nanoseconds(0));
  for (int step = 1; step < 5; ++step) EXPECT_GT(between_behind(true), std::chrono::nanoseconds(0));
  EXPECT_GT(between_behind(false), std::chrono::nanoseconds(0));
  EXPECT_EQ(between_behind(true), std::chrono::nanoseconds(0)) << "it asked twice for this one";
  const LoaderStats stats = loader.stats();
  EXPECT_GE(stats.waits, 1u);
  EXPECT_GT(stats.waited, std::chrono::nanoseconds(0));
  EXPECT_LE(stats.waited + stats.between, std::chrono::steady_clock::now() - begun);
}

TEST(Loader, CountsAWaitThatEndsWithAnError) {
  FakeDaemon daemon({.stalls = true});
  LoaderOptions options = options_for(daemon);
  options.timeout = milliseconds(50);
  Loader loader = Loader::open(options);
  EXPECT_THROW(loader.next(), TimeoutError);
  EXPECT_EQ(loader.stats().waits, 1u);
  EXPECT_GE(loader.stats().waited, milliseconds(50));
}

TEST(Loader, AddsUpWhatThreadsSayOfTheirFunctionsDuringACall) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  {
    const auto maps = [&] {
      for (int i = 0; i < 1000; ++i) loader.mapped(std::chrono::microseconds(3));
    };
    const std::jthread one(maps);
    const std::jthread other(maps);
    for (int step = 0; step < 100; ++step) loader.next();
  }
  loader.mapped(milliseconds(-1));
  EXPECT_EQ(loader.stats().mapped, milliseconds(6));
}

TEST(Loader, LeavesItToACallerThatReadsAheadToTellOfItsLoop) {
  FakeDaemon daemon({.steps = 4});
  daemon.run([](test::FakeService& service) { service.turns_to_tell = {1}; });
  Loader loader = open(daemon);
  const auto told = [&] {
    (void)loader.server_stats();  // answered after all that was said before
    std::vector<std::uint64_t> turns;
    daemon.run([&](test::FakeService& service) { turns = service.handed_turns; });
    return turns;
  };
  bool asks = true;
  loader.next_ahead(asks);
  EXPECT_FALSE(asks);
  loader.next_ahead(asks);
  EXPECT_TRUE(asks);
  const std::uint64_t turn = loader.state().turn;
  loader.next_ahead(asks);
  EXPECT_FALSE(asks);
  EXPECT_THAT(told(), IsEmpty());
  loader.handed(turn);
  EXPECT_THAT(told(), ElementsAre(2));
}

TEST(Loader, SeeksAtTheTurnThatItsCallerHasComeTo) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  loader.next();
  const Cursor early = loader.state();
  loader.next();
  loader.set_epoch(7);
  EXPECT_EQ(loader.state().turn, 2u);
  expect_batch(loader.next(), 7, 0);
  EXPECT_EQ(loader.state().turn, 3u);
  // A caller that reads ahead says an earlier turn than that of the last batch.
  loader.load_state({.epoch = 9, .run = early.run, .turn = early.turn});
  EXPECT_EQ(loader.state().turn, 1u);
  loader.load_state({.epoch = 10});
  expect_batch(loader.next(), 10, 0);
  loader.skip_steps(3);
  daemon.run([](test::FakeService& service) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> said;
    for (const auto& seek : service.seeks) said.emplace_back(seek.turn, seek.skip);
    using std::pair;
    EXPECT_THAT(said, ElementsAre(pair(2, 0), pair(1, 0), pair(1, 0), pair(2, 3)));
  });
  expect_batch(loader.next(), 10, 4);
  EXPECT_EQ(loader.stats().reconnects, 0u);
}

TEST(Loader, AttachesAnewAtAStateThatIsLoadedOnALiveConnection) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  loader.next();
  const Cursor state = loader.state();
  const auto held = loader.next();
  loader.load_state(state);
  EXPECT_EQ(loader.state(), state);
  expect_batch(loader.next(), 0, 1);
  EXPECT_EQ(loader.state().turn, 2u);
  daemon.run([](test::FakeService& service) {
    EXPECT_TRUE(service.seeks.empty());
    ASSERT_EQ(service.attaches.size(), 2u);
    EXPECT_EQ(service.attaches[1].in_run, (delivery::RunTurn{test::kFakeRun, 0, 1}));
    EXPECT_EQ(service.attaches[1].order_digest, "0rder");
  });
  expect_batch(held, 0, 1);
}

TEST(Loader, SaysAtOnceThatTheCallerHoldsAllThereIs) {
  FakeDaemon daemon;
  auto options = options_for(daemon);
  options.prefetch = 2;
  Loader loader = Loader::open(options);
  std::vector<Batch> kept;
  kept.push_back(*loader.next());
  kept.push_back(*loader.next());
  EXPECT_EQ(thrown_message<LeaseError>([&] { loader.next(); }),
            "next() would wait for ever: this process holds all 2 batches that it may hold (step 0 "
            "of epoch 0, step 1 of epoch 0); let go of one, copy what you keep, or raise prefetch");
  kept.erase(kept.begin());
  expect_batch(loader.next(), 0, 2);
}

TEST(Loader, ReachesTheEndOfAnEpochWithEveryCreditHeld) {
  FakeDaemon daemon({.steps = 2});
  auto options = options_for(daemon);
  options.prefetch = 2;
  Loader loader = Loader::open(options);
  std::vector<Batch> kept;
  while (auto batch = loader.next()) kept.push_back(*batch);
  EXPECT_EQ(kept.size(), 2u);
}

TEST(Loader, PinsNothingWithBatchesOfSmallFields) {
  FakeDaemon daemon({.steps = 50, .image_bytes = 4096});
  Loader loader = open(daemon);
  std::vector<Batch> kept;
  while (auto batch = loader.next()) kept.push_back(*batch);
  EXPECT_EQ(kept.size(), 50u);
  expect_batch(kept[17], 0, 17);
}

TEST(Loader, KeepsCopiedFieldsBeyondTheLease) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  auto batch = loader.next();
  const TensorView label = (*batch)["label"];
  const auto owner = batch->owner(label);
  batch.reset();
  while (daemon.service().releases == 0) std::this_thread::yield();
  EXPECT_EQ(reinterpret_cast<const std::int64_t*>(label.data)[3], 3);
}

TEST(Loader, EndsALeaseWithItsLastViewOnAnyThread) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  auto batch = loader.next();
  auto owner = batch->owner((*batch)["image"]);
  batch.reset();
  EXPECT_EQ(loader.stats().held, 1u);
  std::thread([&] { owner.reset(); }).join();
  EXPECT_EQ(loader.stats().held, 0u);
  while (daemon.service().releases == 0) std::this_thread::yield();
}

TEST(Loader, ReleasesEarlyOnlyWhatNobodyElseUses) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  auto batch = loader.next();
  auto copy = batch;
  EXPECT_THAT(thrown_message<LeaseError>([&] { batch->release(); }), HasSubstr("still in use"));
  copy.reset();
  auto owner = batch->owner((*batch)["image"]);
  EXPECT_THAT(thrown_message<LeaseError>([&] { batch->release(); }), HasSubstr("still in use"));
  owner.reset();
  batch->release();
  batch->release();
  EXPECT_TRUE(batch->released());
  EXPECT_EQ((*batch)["image"].data, nullptr);
  EXPECT_EQ(batch->indices()[2], 2) << "what was copied stays";
  thrown_message<LeaseError>([&] { (void)batch->private_data((*batch)["image"]); });
}

TEST(Loader, GivesPrivateViewsThatForgetTheirWrites) {
  for (const auto kind : {delivery::ArenaKind::kMemfd, delivery::ArenaKind::kPosix}) {
    FakeDaemon daemon({.steps = 1000, .arena_kind = kind});
    Loader loader = open(daemon);
    for (std::uint64_t step = 0; step < 30; ++step) {  // slots come round many times
      const auto batch = loader.next();
      ASSERT_TRUE(batch);
      const TensorView& image = (*batch)["image"];
      std::byte* mine = batch->private_data(image);
      for (std::uint64_t i = 0; i < image.bytes; i += 4096) {
        ASSERT_EQ(static_cast<std::uint8_t>(mine[i]), value_of(0, step));
      }
      if (step % 3 == 0) std::memset(mine, 0, image.bytes);
      if (step % 3 == 1) mine[5000] = std::byte{0};
      expect_batch(batch, 0, step);  // the shared bytes are as they were
    }
  }
}

TEST(Loader, KeepsReadableWhatItHoldsOfARetiredArena) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  const auto held = loader.next();
  daemon.run([](test::FakeService& service) { service.replace_arenas(); });
  for (std::uint64_t step = 1; step < 10; ++step) expect_batch(loader.next(), 0, step);
  expect_batch(held, 0, 0);
}

TEST(Loader, GoesOnAfterTheDaemonWasAway) {
  FakeDaemon daemon({.steps = 40});
  Loader loader = open(daemon);
  std::vector<std::uint64_t> steps;
  std::optional<Batch> held = loader.next();
  steps.push_back(held->step());
  for (int restart = 0; restart < 3; ++restart) {
    for (int i = 0; i < 5; ++i) steps.push_back(loader.next()->step());
    daemon.stop();
    daemon.start();
  }
  while (auto batch = loader.next()) {
    expect_batch(batch, 0, steps.size());
    steps.push_back(batch->step());
  }
  std::vector<std::uint64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(steps, all) << "none lost, none twice";
  EXPECT_EQ(loader.stats().reconnects, 3u);
  expect_batch(held, 0, 0);
  held.reset();
  EXPECT_EQ(daemon.service().bad_releases, 0) << "leases of a daemon that died end silently";
}

TEST(Loader, WaitsForADaemonThatComesBackLater) {
  FakeDaemon daemon({.steps = 40});
  auto options = options_for(daemon);
  int tries = 0;
  options.on_unreachable = [&](const std::string& why) {
    EXPECT_THAT(why, HasSubstr("data.sock"));
    if (++tries == 3) daemon.start();
  };
  Loader loader = Loader::open(options);
  loader.next();
  const Cursor before = loader.state();
  daemon.vanish();
  std::optional<Batch> batch;
  do {  // what was prefetched is still good
    batch = loader.next();
  } while (loader.stats().reconnects == 0);
  EXPECT_GT(batch->step(), before.step);
  EXPECT_GE(tries, 3);
}

TEST(Loader, SaysWhatItTriedWhenTheDaemonStaysAway) {
  FakeDaemon daemon({.steps = 40});
  auto options = options_for(daemon);
  options.timeout = milliseconds(150);
  Loader loader = Loader::open(options);
  loader.next();
  daemon.vanish();
  const std::string said = thrown_message<ConnectionError>([&] {
    for (;;) loader.next();
  });
  EXPECT_THAT(said, AllOf(HasSubstr("lost the spdld daemon at " + daemon.address()),
                          HasSubstr("attempts in 150 ms"), HasSubstr("data.sock")));
}

TEST(Loader, SaysWhyTheConnectionWasLostHoweverOftenItIsAsked) {
  FakeDaemon daemon({.steps = 40});
  auto options = options_for(daemon);
  options.timeout = milliseconds(150);
  Loader loader = Loader::open(options);
  loader.next();
  daemon.vanish();
  const std::string lost = "lost the spdld daemon at " + daemon.address() + " (";
  const auto why = [&](const std::string& said) {
    EXPECT_THAT(said, HasSubstr(lost));
    return said.substr(0, said.find(')'));
  };
  const std::string first = why(thrown_message<ConnectionError>([&] {
    for (;;) loader.next();
  }));
  EXPECT_GT(first.size(), lost.size());
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(why(thrown_message<ConnectionError>([&] { loader.next(); })), first);
}

TEST(Loader, SaysHowToStartADaemonWhereThereIsNone) {
  const test::ScratchDir dir;
  Loader loader = Loader::open({.pipeline = "p",
                                .job = "",
                                .rank = 0,
                                .world_size = 1,
                                .address = dir.path(),
                                .connect_timeout = milliseconds(30)});
  EXPECT_THAT(thrown_message<ConnectionError>([&] { loader.next(); }),
              AllOf(HasSubstr("no spdld daemon answers at " + dir.path()),
                    HasSubstr("No such file or directory"), HasSubstr("spdld --config")));
  Loader far = Loader::open({.pipeline = "p",
                             .job = "",
                             .rank = 0,
                             .world_size = 1,
                             .address = dir.path() + std::string(100, 'x'),
                             .connect_timeout = milliseconds(1)});
  EXPECT_THAT(thrown_message<ConnectionError>([&] { far.next(); }),
              HasSubstr("the kernel allows 107"));
}

TEST(Loader, PassesOnWhyTheDaemonRefuses) {
  FakeDaemon daemon;
  auto options = options_for(daemon);
  options.pipeline = "missing";
  Loader loader = Loader::open(options);
  try {
    loader.next();
    FAIL();
  } catch (const PipelineError& error) {
    EXPECT_STREQ(error.what(), "there is no pipeline 'missing'");
    EXPECT_EQ(error.code(), static_cast<int>(Code::kNotFound));
  }
}

TEST(Loader, PassesOnThatItsDataCannotBeHadThoughTheDaemonCan) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  loader.next();
  daemon.run([](test::FakeService& service) {
    service.fail_all(Status(Code::kUnavailable, "cannot read /data/7.jpg, also after 5 retries"));
  });
  EXPECT_EQ(thrown_message<PipelineError>([&] {
              for (;;) loader.next();
            }),
            "cannot read /data/7.jpg, also after 5 retries");
}

TEST(Loader, StopsWhenItIsEvicted) {
  FakeDaemon daemon({.steps = 100});
  Loader loader = open(daemon);
  loader.next();
  daemon.run([](test::FakeService& service) {
    service.say_bye(wire::ByeReason::kEvicted, "evicted by uid 0");
  });
  EXPECT_EQ(thrown_message<PipelineError>([&] {
              for (;;) loader.next();
            }),
            "evicted by uid 0");
  EXPECT_EQ(loader.stats().reconnects, 0u);
}

TEST(Loader, CountsOnlySilenceTowardsTheTimeout) {
  FakeDaemon daemon({.stalls = true});
  auto options = options_for(daemon);
  options.timeout = milliseconds(120);
  int asked = 0;
  options.on_wait = [&] { ++asked; };
  Loader loader = Loader::open(options);
  EXPECT_THAT(thrown_message<TimeoutError>([&] { loader.next(); }),
              AllOf(HasSubstr("no sign of life from the daemon for 120 ms"),
                    HasSubstr("step 0 of epoch 0 of 'p'"), HasSubstr("indexing (1 of 2)")));
  EXPECT_GT(asked, 0);
}

TEST(Loader, NamesWhatDoesNotComeOnAndTakesThatForNoSignOfLife) {
  FakeDaemon daemon({.stalls = true, .stands_at = "item 3 (a/b.jpg) is being read for 2 s"});
  auto options = options_for(daemon);
  options.timeout = milliseconds(120);
  Loader loader = Loader::open(options);
  EXPECT_EQ(thrown_message<TimeoutError>([&] { loader.next(); }),
            "no headway for 120 ms while waiting for step 0 of epoch 0 of 'p' (shard 0 of 1): "
            "item 3 (a/b.jpg) is being read for 2 s");
}

TEST(Loader, PassesOnWhatTheDaemonLearnsAfterTheAttach) {
  FakeDaemon daemon({.notice = "/data lists 501 items now"});
  auto options = options_for(daemon);
  std::vector<std::string> notices;
  options.on_notice = [&](const std::string& text) { notices.push_back(text); };
  Loader loader = Loader::open(options);
  EXPECT_TRUE(loader.next());
  EXPECT_THAT(notices, ElementsAre("/data lists 501 items now"));
}

TEST(Loader, PassesOnANoticeThatComesWhileItSkips) {
  FakeDaemon daemon({.notice = "/data lists 501 items now"});
  auto options = options_for(daemon);
  std::vector<std::string> notices;
  options.on_notice = [&](const std::string& text) { notices.push_back(text); };
  Loader loader = Loader::open(options);
  loader.skip_steps(1);
  EXPECT_THAT(notices, ElementsAre("/data lists 501 items now"));
}

TEST(Loader, LeavesAWaitThatTheCallerInterrupts) {
  FakeDaemon daemon({.stalls = true});
  auto options = options_for(daemon);
  struct Interrupted {};
  options.on_wait = [] { throw Interrupted(); };
  Loader loader = Loader::open(options);
  EXPECT_THROW(loader.next(), Interrupted);
  EXPECT_THROW(loader.next(), Interrupted) << "it can be called again";
}

TEST(Loader, KeepsItsConnectionUntilTheLastLeaseAfterClosing) {
  FakeDaemon daemon;
  std::optional<Batch> batch;
  {
    Loader loader = open(daemon);
    batch = loader.next();
    loader.close();
    EXPECT_TRUE(loader.closed());
    EXPECT_THAT(thrown_message<ConnectionError>([&] { loader.next(); }), HasSubstr("closed"));
  }
  while (daemon.service().detaches == 0) std::this_thread::yield();
  EXPECT_EQ(daemon.service().closes, 0);
  expect_batch(batch, 0, 0);
  batch.reset();
  while (daemon.service().closes == 0) std::this_thread::yield();
  EXPECT_EQ(daemon.service().retired, 3)
      << "what was sent and never seen; the one held was released";
}

TEST(Loader, RefusesToWorkInAForkedChildAndLeavesTheParentAlone) {
  FakeDaemon daemon;
  Loader loader = open(daemon);
  auto batch = loader.next();
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      loader.next();
    } catch (const ConnectionError& error) {
      refused = std::string(error.what()).find("child") != std::string::npos;
    }
    const bool copy_is_there = batch->indices()[1] == 1;
    batch.reset();  // tells nobody
    ::_exit(refused && copy_is_there ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(daemon.service().releases, 0);
  expect_batch(batch, 0, 0);
  batch.reset();
  for (std::uint64_t step = 1; step < 5; ++step) expect_batch(loader.next(), 0, step);
}

TEST(Loader, RefusesOptionsThatCannotBe) {
  const auto refusal = [](LoaderOptions options) {
    options.rank = 0;
    options.world_size = 1;
    return thrown_message<PipelineError>([&] { Loader::open(std::move(options)); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("pipeline is empty"));
  EXPECT_THAT(refusal({.pipeline = "p", .batch_size = 0}), HasSubstr("batch_size is 0"));
  EXPECT_THAT(refusal({.pipeline = "p", .prefetch = 1}), HasSubstr("prefetch is 1; it is 2 to 64"));
  EXPECT_THAT(
      refusal(
          {.pipeline = "p",
           .seed = 1,
           .cursor = Cursor{.order_digest = "d", .seed = 2, .epoch = 0, .position = 0, .step = 0}}),
      AllOf(HasSubstr("seed is 1"), HasSubstr("seed 2; leave seed out, or give that one")));
}

TEST(Loader, SaysHowToGoToACursorOfAnotherSeedThanItsOwn) {
  FakeDaemon daemon;
  auto options = options_for(daemon);
  options.seed = 4;
  Loader loader = Loader::open(options);
  const Cursor cursor{.order_digest = "0rder", .seed = 42, .epoch = 0, .position = 0, .step = 0};
  EXPECT_EQ(thrown_message<PipelineError>([&] { loader.load_state(cursor); }),
            "the cursor was made with seed 42, and the loader was opened with 4; leave seed out, "
            "or give 42");
}

TEST(Loader, CanBeMoved) {
  FakeDaemon daemon;
  Loader first = open(daemon);
  first.next();
  Loader second = std::move(first);
  expect_batch(second.next(), 0, 1);
  first = std::move(second);
  expect_batch(first.next(), 0, 2);
}

}  // namespace
}  // namespace spdld

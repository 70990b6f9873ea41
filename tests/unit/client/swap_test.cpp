// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "spdld/loader.h"
#include "tests/unit/client/fake_daemon.h"
#include "tests/unit/client/mapped_arenas.h"
#include "tests/unit/client/thrown.h"

// What a loader does while its job is changed under it.
namespace spdld {
namespace {

using test::FakeDaemon;
using test::FakePipeline;
using test::FakeService;
using test::mapped_arenas;
using test::thrown;
using test::value_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kSteps = 20;
const FakePipeline kOld{.steps = kSteps};
const FakePipeline kNew{
    .steps = 8, .rows = 6, .image_bytes = 64 * 1024, .order_digest = "0ther", .version = 4};

class SwapTest : public ::testing::Test {
 protected:
  SwapTest() : daemon_(kOld) {
    daemon_.run([](FakeService& service) { service.swap_to = kNew; });
  }

  LoaderOptions options() const { return test::options_for(daemon_); }
  Loader open() const { return Loader::open(options()); }
  // Reads to the end of the epoch, checking each batch.
  void read_epoch(Loader& loader, std::uint64_t epoch, std::uint64_t from, std::uint64_t steps) {
    for (std::uint64_t step = from; step < steps; ++step) expect_batch(loader.next(), epoch, step);
    EXPECT_FALSE(loader.next());
  }
  static void expect_batch(const std::optional<Batch>& batch, std::uint64_t epoch,
                           std::uint64_t step) {
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->epoch(), epoch);
    EXPECT_EQ(batch->step(), step);
    const TensorView& image = (*batch)["image"];
    for (std::uint64_t i = 0; i < image.bytes; i += 1024) {
      ASSERT_EQ(static_cast<std::uint8_t>(image.data[i]), value_of(epoch, step));
    }
  }

  FakeDaemon daemon_;
};

TEST_F(SwapTest, KeepsEveryBatchThatComesWhileItApplies) {
  Loader loader = open();
  expect_batch(loader.next(), 0, 0);
  EXPECT_EQ(loader.apply({{"size", "256"}, {"name", "a=b"}}),
            (Applied{.version = 4, .epoch = 1, .step = 0, .tuned = false}));
  daemon_.run([](FakeService& service) {
    ASSERT_EQ(service.applies.size(), 1u);
    EXPECT_EQ(service.applies[0].vars,
              (std::map<std::string, std::string>{{"size", "256"}, {"name", "a=b"}}));
    EXPECT_EQ(service.applies[0].at, wire::ApplyAt::kNextEpoch);
    EXPECT_FALSE(service.applies[0].allow_schema_change);
  });
  read_epoch(loader, 0, 1, kSteps);
  read_epoch(loader, 1, 0, kNew.steps);
  EXPECT_EQ(daemon_.service().bad_releases, 0);
}

TEST_F(SwapTest, SaysWhereTheChangeShallBe) {
  Loader loader = open();
  loader.apply({{"a", "1"}}, {.at = ApplyAt::kNow});
  loader.apply({{"a", "2"}},
               {.at = ApplyAt::kStep, .epoch = 3, .step = 17, .allow_schema_change = true});
  daemon_.run([](FakeService& service) {
    ASSERT_EQ(service.applies.size(), 2u);
    EXPECT_EQ(service.applies[0].at, wire::ApplyAt::kNow);
    EXPECT_EQ(service.applies[1].at, wire::ApplyAt::kStep);
    EXPECT_EQ(service.applies[1].epoch, 3u);
    EXPECT_EQ(service.applies[1].step, 17u);
    EXPECT_TRUE(service.applies[1].allow_schema_change);
    EXPECT_NE(service.applies[0].serial, service.applies[1].serial);
  });
}

TEST_F(SwapTest, ChangesItsFactsWithTheFirstBatchOfTheNewVersion) {
  Loader loader = open();
  loader.apply({{"size", "256"}});
  const auto facts = [&] {
    return std::vector<std::uint64_t>{loader.steps_per_epoch(), loader.items(), loader.batch_size(),
                                      loader.pipeline_version()};
  };
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(loader.next()->pipeline_version(), 3u);
    EXPECT_THAT(facts(), ElementsAre(kSteps, kSteps * 4, 4, 3));
    EXPECT_EQ(loader.state().order_digest, "0rder");
  }
  EXPECT_FALSE(loader.next());
  EXPECT_EQ(loader.pipeline_version(), 3u) << "what was announced behind the end comes later";
  EXPECT_EQ(loader.state().order_digest, "0rder");
  const auto first = loader.next();
  EXPECT_EQ(first->pipeline_version(), 4u);
  EXPECT_THAT((*first)["image"].shape(), ElementsAre(6, 64 * 1024));
  EXPECT_THAT(facts(), ElementsAre(8, 48, 6, 4));
  EXPECT_EQ(loader.state(), (Cursor{.order_digest = "0ther",
                                    .seed = 42,
                                    .epoch = 1,
                                    .position = 6,
                                    .step = 1,
                                    .run = test::kFakeRun,
                                    .turn = kSteps + 1}));
  EXPECT_THAT(loader.fingerprint(), HasSubstr("order 0ther seed 42 items 48 shards 1 batch 6"));
}

TEST_F(SwapTest, ReadsOldAndNewMemoryAtOnceAndUnmapsTheOldWithItsLastLease) {
  Loader loader = open();
  loader.apply({{"size", "256"}});
  for (std::uint64_t step = 0; step + 1 < kSteps; ++step) loader.next();
  auto old = loader.next();
  std::byte* const old_view = old->private_data((*old)["image"]);
  std::memset(old_view, 0x55, 4096);
  EXPECT_FALSE(loader.next());
  auto fresh = loader.next();
  EXPECT_EQ(mapped_arenas(), 2);
  std::byte* const fresh_view = fresh->private_data((*fresh)["image"]);
  std::memset(fresh_view, 0x66, 4096);
  for (std::uint64_t step = 1; step < 4; ++step) expect_batch(loader.next(), 1, step);
  EXPECT_EQ(static_cast<int>(old_view[4095]), 0x55);
  EXPECT_EQ(static_cast<std::uint8_t>(old_view[4096]), value_of(0, kSteps - 1));
  EXPECT_EQ(static_cast<int>(fresh_view[4095]), 0x66);
  expect_batch(old, 0, kSteps - 1);
  expect_batch(fresh, 1, 0);
  old.reset();
  EXPECT_EQ(mapped_arenas(), 1);
  expect_batch(fresh, 1, 0);
  EXPECT_EQ(daemon_.service().bad_releases, 0);
}

TEST_F(SwapTest, GoesBackToAStepOfTheVersionBefore) {
  Loader loader = open();
  loader.next();
  loader.next();
  const Cursor before = loader.state();
  loader.apply({{"size", "256"}});
  read_epoch(loader, 0, 2, kSteps);
  expect_batch(loader.next(), 1, 0);
  const Cursor after = loader.state();
  loader.load_state(before);
  EXPECT_EQ(loader.state(), before);
  expect_batch(loader.next(), 0, 2);
  EXPECT_EQ(loader.pipeline_version(), 3u);
  EXPECT_EQ(loader.state().order_digest, "0rder");
  loader.load_state(after);
  EXPECT_EQ(loader.state(), after);
}

TEST_F(SwapTest, RefusesACursorWhoseOrderHasEndedThere) {
  Loader loader = open();
  loader.next();
  loader.apply({{"size", "256"}});
  read_epoch(loader, 0, 1, kSteps);
  loader.next();
  loader.load_state({.order_digest = "0rder", .seed = 42, .epoch = 2, .position = 4, .step = 1});
  EXPECT_STREQ(thrown<PipelineError>([&] { loader.next(); }).what(),
               "the cursor is of another order");
  loader.load_state({.order_digest = "0rder", .seed = 42, .epoch = 2, .position = 0, .step = 0});
  expect_batch(loader.next(), 2, 0);
  EXPECT_EQ(loader.state().order_digest, "0ther") << "at an epoch's start the order may be new";
}

TEST_F(SwapTest, ReconnectsAcrossAChangeOfOrderAtAnEpochsStart) {
  auto options = this->options();
  options.prefetch = 2;
  Loader loader = Loader::open(options);
  for (std::uint64_t step = 0; step + 2 < kSteps; ++step) loader.next();
  // With both of its credits held, nothing of the next epoch is on its way.
  std::vector<Batch> held;
  while (auto batch = loader.next()) held.push_back(*batch);
  daemon_.stop();
  daemon_.pipeline() = kNew;  // the job has changed while it was away
  daemon_.start();
  const auto batch = loader.next();
  EXPECT_EQ(loader.stats().reconnects, 1u);
  expect_batch(batch, 1, 0);
  EXPECT_EQ(loader.pipeline_version(), 4u);
  EXPECT_EQ(loader.state().order_digest, "0ther");
}

TEST_F(SwapTest, RefusesToGoOnInTheMiddleOfAnEpochInAnotherOrder) {
  Loader loader = open();
  loader.next();
  daemon_.stop();
  daemon_.pipeline() = kNew;
  daemon_.start();
  EXPECT_THAT(thrown<PipelineError>([&] {
                for (;;) loader.next();
              }).what(),
              HasSubstr("another order"));
}

TEST_F(SwapTest, PassesOnWhyAnApplyWasRefusedAndGoesOn) {
  daemon_.run([](FakeService& service) {
    service.apply_refusal = Status(Code::kFailedPrecondition, "step 3 of epoch 0 has passed");
  });
  Loader loader = open();
  expect_batch(loader.next(), 0, 0);
  const auto error = thrown<PipelineError>([&] {
    loader.apply({{"a", "1"}}, {.at = ApplyAt::kStep, .epoch = 0, .step = 3});
  });
  EXPECT_STREQ(error.what(), "step 3 of epoch 0 has passed");
  EXPECT_EQ(error.code(), 9);
  read_epoch(loader, 0, 1, kSteps);
  EXPECT_EQ(loader.stats().reconnects, 0u);
}

TEST_F(SwapTest, RefusesVariablesThatCannotBe) {
  Loader loader = open();
  const auto says = [&](const std::map<std::string, std::string>& vars) {
    return std::string(thrown<PipelineError>([&] { loader.apply(vars); }).what());
  };
  EXPECT_THAT(says({}), HasSubstr("no variables"));
  EXPECT_THAT(says({{"", "1"}}), HasSubstr("'' is no variable's name"));
  EXPECT_THAT(says({{"a=b", "1"}}), HasSubstr("'a=b' is no variable's name"));
  EXPECT_THAT(says({{"a", std::string("1\0", 2)}}), HasSubstr("'a' has a NUL"));
  EXPECT_THAT(says({{"a", std::string(wire::kMaxFrameBytes, 'x')}}), HasSubstr("are allowed"));
  std::map<std::string, std::string> many;
  for (int i = 0; i < 300; ++i) many[std::to_string(i)] = "1";
  EXPECT_THAT(says(many), HasSubstr("300 variables"));
  expect_batch(loader.next(), 0, 0);
  daemon_.run([](FakeService& service) { EXPECT_TRUE(service.applies.empty()); });
}

TEST_F(SwapTest, SkipsStepsOfTheEpochItIsIn) {
  Loader loader = open();
  expect_batch(loader.next(), 0, 0);
  loader.skip_steps(3);
  EXPECT_EQ(loader.state(), (Cursor{.order_digest = "0rder",
                                    .seed = 42,
                                    .epoch = 0,
                                    .position = 16,
                                    .step = 4,
                                    .run = test::kFakeRun,
                                    .turn = 1}));
  expect_batch(loader.next(), 0, 4);
  loader.skip_steps(0);
  expect_batch(loader.next(), 0, 5);
  loader.skip_steps(~std::uint64_t{0});
  EXPECT_EQ(loader.state().step, kSteps);
  EXPECT_FALSE(loader.next());
  read_epoch(loader, 1, 0, kSteps);
  EXPECT_EQ(daemon_.service().bad_releases, 0);
}

TEST_F(SwapTest, SkipsBeforeItsFirstBatchAndFromALedgersPlace) {
  Loader fresh = open();
  fresh.skip_steps(2);
  expect_batch(fresh.next(), 0, 2);
  auto at_ledger = options();
  at_ledger.start = Start::kLedger;
  Loader loader = Loader::open(at_ledger);
  loader.skip_steps(5);
  expect_batch(loader.next(), 7, 5);
}

TEST_F(SwapTest, BeginsAnEpochWhereverItsLedgerIs) {
  auto at_ledger = options();
  at_ledger.start = Start::kLedger;
  Loader loader = Loader::open(at_ledger);
  loader.set_epoch(0);
  expect_batch(loader.next(), 0, 0);
  EXPECT_EQ(Loader::open(at_ledger).state().epoch, 7U);
}

TEST_F(SwapTest, SkipsAfterItsDaemonCameBack) {
  Loader loader = open();
  expect_batch(loader.next(), 0, 0);
  daemon_.stop();
  daemon_.start();
  loader.skip_steps(4);
  expect_batch(loader.next(), 0, 5);
  EXPECT_EQ(loader.stats().reconnects, 1u);
}

TEST_F(SwapTest, GoesOnWhereItWasAfterASkipThatWasRefused) {
  auto options = this->options();
  options.cursor =
      Cursor{.order_digest = "0rder", .seed = 42, .epoch = 666, .position = 8, .step = 2};
  Loader loader = Loader::open(options);
  expect_batch(loader.next(), 666, 2);
  EXPECT_STREQ(thrown<PipelineError>([&] { loader.skip_steps(1); }).what(),
               "there is no epoch 666");
  expect_batch(loader.next(), 666, 3);
}

TEST_F(SwapTest, LetsGoOfTheMemoryOfAConnectionThatFailed) {
  Loader loader = open();
  auto held = loader.next();
  daemon_.run([](FakeService& service) {
    service.fail_all(Status(Code::kResourceExhausted, "the budget of bad rows is spent"));
  });
  thrown<PipelineError>([&] {
    for (;;) loader.next();
  });
  EXPECT_EQ(mapped_arenas(), 1) << "a lease is in it";
  expect_batch(held, 0, 0);
  EXPECT_EQ(daemon_.service().exits, 0);
  held.reset();
  EXPECT_EQ(mapped_arenas(), 0);
  while (daemon_.service().exits == 0) std::this_thread::yield();  // the daemon's memory, too
}

TEST_F(SwapTest, LetsGoOfTheMemoryWhenItIsEvictedInTheMiddleOfAnApply) {
  Loader loader = open();
  loader.next();
  EXPECT_EQ(mapped_arenas(), 1);
  daemon_.run(
      [](FakeService& service) { service.say_bye(wire::ByeReason::kEvicted, "evicted by uid 0"); });
  EXPECT_STREQ(thrown<PipelineError>([&] {
                 loader.apply({{"a", "1"}});
               }).what(),
               "evicted by uid 0");
  EXPECT_EQ(mapped_arenas(), 0);
  while (daemon_.service().exits == 0) std::this_thread::yield();
}

}  // namespace
}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#include "engine/worker_time.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/executor.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/batches.h"

namespace spdld::engine {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using testing::FakeSource;

nanoseconds sum(const WorkerTime& time) {
  return std::accumulate(time.idle.begin(), time.idle.end(), time.rows + time.batches);
}

TEST(WorkerClocks, HaveNothingOfAWorkerThatHasNotBegun) {
  const WorkerClocks clocks(2);
  EXPECT_EQ(sum(clocks.total()), nanoseconds(0));
  EXPECT_TRUE(clocks.threads().empty());
}

TEST(WorkerClocks, AddUpToTheTimeSinceTheWorkerBegan) {
  WorkerClocks clocks(1);
  const auto before = steady_clock::now();
  clocks.begin(0);
  const auto begun = steady_clock::now();
  clocks.opened_batch(0);
  clocks.made_rows(0);
  clocks.idle_for(Idle::kBytes);
  clocks.sleeps(0);
  const auto slept = steady_clock::now();
  const nanoseconds in_sleep = sum(clocks.total());
  EXPECT_GE(in_sleep, slept - begun);
  while (steady_clock::now() - slept < std::chrono::milliseconds(1)) std::this_thread::yield();
  const auto woken = steady_clock::now();
  clocks.idle_for(Idle::kMemory);
  clocks.wakes(0);
  EXPECT_GE(clocks.total().of(Idle::kBytes), woken - slept);
  EXPECT_EQ(clocks.total().of(Idle::kSlot), nanoseconds(0));
  const auto looked = steady_clock::now();
  const WorkerTime total = clocks.total();
  EXPECT_GE(sum(total), looked - begun);
  EXPECT_LE(sum(total), steady_clock::now() - before);
  EXPECT_EQ(clocks.threads(), std::vector<pid_t>{::gettid()});
}

TEST(WaitedForCores, IsNotKnownOfAThreadThatThereIsNot) {
  const pid_t none = 0;
  EXPECT_EQ(waited_for_cores({&none, 1}), std::nullopt);
  EXPECT_EQ(waited_for_cores({}), nanoseconds(0));
}

// Has `steps` batches to be made.
class Steps final : public StreamPort {
 public:
  Steps(const Plan& plan, std::uint64_t steps)
      : slots_(steps, std::vector<std::byte>(plan.layout.slot_bytes())) {}

  std::optional<BatchOrder> open() override {
    if (next_ == slots_.size()) return std::nullopt;
    const std::uint64_t step = next_++;
    return BatchOrder{.epoch = 0,
                      .step = step,
                      .rows = {.first = step * kRows, .rows = kRows, .valid = kRows},
                      .slot = slots_[step].data()};
  }
  void commit(const BatchOrder&) override { made_.release(); }
  void abandon(const BatchOrder&) override {}
  Status may_replace(const SampleFailure&) override { return {}; }
  void fail(const StreamFailure& failure) override { ADD_FAILURE() << failure.status.message(); }

  void wait_for_batches() {
    for (std::size_t step = 0; step < slots_.size(); ++step) made_.acquire();
  }

 private:
  std::vector<std::vector<std::byte>> slots_;
  std::size_t next_ = 0;  // the executor asks one worker at a time
  std::counting_semaphore<> made_{0};
};

// Two workers, of which one is idle for a reason.
class WorkerTimeTest : public ::testing::Test {
 protected:
  std::shared_ptr<Steps> start(const std::string& stages, RunLimits limits = {},
                               int process_concurrency = 0) {
    auto plan = testing::compile(stages, "batch: {size: 4, max_bytes: 1KiB}\n");
    EXPECT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    auto steps = std::make_shared<Steps>(*plan_, kItems / kRows);
    run_ = std::make_shared<engine::Run>(plan_, source_, source::Sampler(kItems, Shuffle{}, 1), 1,
                                         RunPool{2}, limits, clock_);
    executor_.tune(*run_, run_->fetch_concurrency(), process_concurrency);
    stream_ = executor_.open_stream(run_, steps);
    return steps;
  }
  void wait_for(Idle why) {
    const nanoseconds before = executor_.worker_time().of(why);
    while (executor_.worker_time().of(why) == before) std::this_thread::yield();
  }
  nanoseconds head(HeadWait wait) { return executor_.head_time(stream_).of(wait); }
  void wait_for(HeadWait wait) {
    const nanoseconds before = head(wait);
    while (head(wait) == before) std::this_thread::yield();
  }
  // One row keeps its worker until let_go().
  void keep_a_row() {
    source_->on_given = [this](std::uint64_t item, source::FetchedItem&) {
      if (item != 0) return;
      in_row_.release();
      go_.acquire();
    };
  }
  void let_go(Steps& steps) {
    go_.release();
    steps.wait_for_batches();
  }

  SystemClock clock_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<FakeSource> source_ = std::make_shared<FakeSource>(FakeSource::numbered(kItems));
  std::shared_ptr<engine::Run> run_;
  StreamId stream_ = 0;
  std::binary_semaphore in_row_{0};
  std::binary_semaphore go_{0};
  Executor executor_{ExecutorOptions{.threads = 2}};
};

TEST_F(WorkerTimeTest, IsIdleWhereNobodyReads) { wait_for(Idle::kWork); }

TEST_F(WorkerTimeTest, IsIdleWhereConsumersHaveAllTheirBatches) {
  start("  - fetch\n")->wait_for_batches();
  wait_for(Idle::kSlot);
  EXPECT_GT(executor_.worker_time().rows, nanoseconds(0));
  EXPECT_GT(executor_.worker_time().batches, nanoseconds(0));
}

TEST_F(WorkerTimeTest, IsIdleWhereASourceHasAllTheRowsThatItMayHave) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  const auto steps = start("  - fetch: {concurrency: 3}\n");
  source_->wait_for_readers(3);
  wait_for(Idle::kBytes);
  std::jthread answers([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) source_->answer();
  });
  steps->wait_for_batches();
}

TEST_F(WorkerTimeTest, IsIdleWhereAJobHasAllTheWorkersThatItMayHave) {
  keep_a_row();
  const auto steps = start("  - fetch\n", {.workers = 1});
  in_row_.acquire();
  wait_for(Idle::kJobBound);
  EXPECT_EQ(executor_.worker_time().of(Idle::kStageBound), nanoseconds(0));
  let_go(*steps);
}

TEST_F(WorkerTimeTest, IsIdleWhereAStageHasAllTheWorkersThatItMayHave) {
  keep_a_row();
  const auto steps = start("  - fetch\n", {}, 1);
  in_row_.acquire();
  wait_for(Idle::kStageBound);
  EXPECT_EQ(executor_.worker_time().of(Idle::kJobBound), nanoseconds(0));
  let_go(*steps);
}

TEST_F(WorkerTimeTest, TellsARunsCpuTimeApartFromTheTimeThatItsRowsTake) {
  keep_a_row();
  const auto steps = start("  - fetch\n");
  in_row_.acquire();
  const auto kept = steady_clock::now();
  while (steady_clock::now() - kept < std::chrono::milliseconds(20)) std::this_thread::yield();
  let_go(*steps);
  executor_.stop();
  EXPECT_GT(run_->cpu_time(), nanoseconds(0));
  EXPECT_LT(run_->cpu_time(), executor_.worker_time().rows);
}

TEST_F(WorkerTimeTest, AddsUpToTheTimeThatPassesForEachWorker) {
  wait_for(Idle::kWork);
  keep_a_row();
  const auto steps = start("  - fetch\n");
  in_row_.acquire();
  wait_for(Idle::kSlot);  // the other worker has made all other rows: both have begun
  const auto outer = steady_clock::now();
  const nanoseconds first = sum(executor_.worker_time());
  const auto inner = steady_clock::now();
  let_go(*steps);
  wait_for(Idle::kSlot);
  const auto inner_end = steady_clock::now();
  const nanoseconds passed = sum(executor_.worker_time()) - first;
  const auto outer_end = steady_clock::now();
  EXPECT_GE(passed, 2 * (inner_end - inner));
  EXPECT_LE(passed, 2 * (outer_end - outer));
}

using HeadTimeTest = WorkerTimeTest;

TEST_F(HeadTimeTest, OfABatchGoesByWhileItsSourceHasItsRows) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  const auto steps = start("  - fetch: {concurrency: 3}\n");
  source_->wait_for_readers(3);
  wait_for(HeadWait::kBytes);
  EXPECT_EQ(head(HeadWait::kMemory), nanoseconds(0));
  std::jthread answers([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) source_->answer();
  });
  steps->wait_for_batches();
}

TEST_F(HeadTimeTest, OfABatchGoesByWhileItsRowsWaitForAWorker) {
  keep_a_row();
  const auto steps = start("  - fetch\n", {}, 1);
  in_row_.acquire();
  wait_for(HeadWait::kWorker);
  EXPECT_EQ(head(HeadWait::kBytes), nanoseconds(0));
  let_go(*steps);
}

TEST_F(HeadTimeTest, OfABatchGoesByWhileWorkersMakeItsLastRows) {
  keep_a_row();
  const auto steps = start("  - fetch\n");
  in_row_.acquire();
  wait_for(HeadWait::kMaking);
  let_go(*steps);
}

TEST_F(HeadTimeTest, IsNoLongerThanTheTimeThatPassesAndStandsStillWithoutABatch) {
  const auto begun = steady_clock::now();
  start("  - fetch\n")->wait_for_batches();
  wait_for(Idle::kSlot);
  const HeadTime made = executor_.head_time(stream_);
  const nanoseconds all = std::accumulate(made.waited.begin(), made.waited.end(), nanoseconds(0));
  EXPECT_GT(all, nanoseconds(0));
  EXPECT_LE(all, steady_clock::now() - begun);
  wait_for(Idle::kSlot);
  EXPECT_EQ(executor_.head_time(stream_).waited, made.waited);
}

TEST_F(HeadTimeTest, OfAStreamThatThereIsNotIsNone) {
  EXPECT_EQ(executor_.head_time(12345).waited, HeadTime().waited);
}

}  // namespace
}  // namespace spdld::engine

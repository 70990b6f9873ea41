// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/executor.h"
#include "tests/support/clocks.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/batches.h"

// How the executor divides its workers between runs.
namespace spdld::engine {
namespace {

using testing::FakeSource;

constexpr std::chrono::microseconds kCost{200};

// Every row costs the same CPU time; how many are at it at once is counted.
class CostlySource final : public FakeSource {
 public:
  CostlySource() : FakeSource(numbered(kItems)) {}

  Result<source::FetchState> fetch(std::uint64_t item,
                                   std::span<const source::PartRequest> requests,
                                   source::FetchedItem& out, source::FetchSink& sink,
                                   std::uint64_t token) override {
    {
      MutexLock lock(mutex_);
      most_ = std::max(most_, ++at_once_);
      changed_.notify_all();
      while (at_once_ < gather_ && most_ < gather_) changed_.wait(mutex_);
    }
    const auto until = thread_cpu_time() + kCost;
    while (thread_cpu_time() < until) {
    }
    auto state = FakeSource::fetch(item, requests, out, sink, token);
    MutexLock lock(mutex_);
    --at_once_;
    return state;
  }

  // From now on; rows wait until there are as many as `gather`.
  void count_anew(int gather = 0) {
    MutexLock lock(mutex_);
    most_ = at_once_;
    gather_ = gather;
  }
  int most_at_once() {
    MutexLock lock(mutex_);
    return most_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int at_once_ SPDLD_GUARDED_BY(mutex_) = 0;
  int most_ SPDLD_GUARDED_BY(mutex_) = 0;
  int gather_ SPDLD_GUARDED_BY(mutex_) = 0;
};

// Wants batches without end, while it is awake.
class Hungry final : public StreamPort {
 public:
  explicit Hungry(const Plan& plan) {
    // So many that no run waits for a row whose worker the machine keeps from its core.
    for (int slot = 0; slot < 64; ++slot) {
      memory_.emplace_back(plan.layout.slot_bytes());
      free_.push_back(memory_.back().data());
    }
  }

  std::optional<BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (asleep_ || free_.empty()) return std::nullopt;
    const std::uint64_t step = next_++;
    const BatchOrder order{
        .epoch = step / (kItems / kRows),
        .step = step % (kItems / kRows),
        .rows = {.first = step % (kItems / kRows) * kRows, .rows = kRows, .valid = kRows},
        .slot = free_.back()};
    free_.pop_back();
    return order;
  }
  void commit(const BatchOrder& order) override {
    {
      MutexLock lock(mutex_);
      rows_ += kRows;
    }
    abandon(order);
  }
  void abandon(const BatchOrder& order) override {
    {
      MutexLock lock(mutex_);
      free_.push_back(order.slot);
      changed_.notify_all();
    }
    executor->wake(stream);
  }
  Status may_replace(const SampleFailure&) override { return {}; }
  void fail(const StreamFailure& failure) override { ADD_FAILURE() << failure.status.message(); }

  void sleep(bool asleep) {
    {
      MutexLock lock(mutex_);
      asleep_ = asleep;
    }
    executor->wake(stream);
  }
  // Until it has no batch under way, while it sleeps.
  void wait_for_rest() {
    MutexLock lock(mutex_);
    while (free_.size() < memory_.size()) changed_.wait(mutex_);
  }
  std::uint64_t rows() {
    MutexLock lock(mutex_);
    return rows_;
  }
  void wait_for_rows(std::uint64_t rows) {
    MutexLock lock(mutex_);
    while (rows_ < rows) changed_.wait(mutex_);
  }

  Executor* executor = nullptr;
  std::atomic<StreamId> stream{0};

 private:
  std::vector<std::vector<std::byte>> memory_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::byte*> free_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t next_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t rows_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool asleep_ SPDLD_GUARDED_BY(mutex_) = false;
};

class FairShareTest : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    auto plan = testing::compile("  - fetch\n", "batch: {size: 4, max_bytes: 1KiB}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
  }
  void TearDown() override { executor_.stop(); }
  std::shared_ptr<engine::Run> run(RunLimits limits = {}) {
    return std::make_shared<engine::Run>(plan_, source_, source::Sampler(kItems, Shuffle{}, 1), 1,
                                         RunPool{GetParam()}, limits, clock_);
  }
  std::shared_ptr<Hungry> start(const std::shared_ptr<engine::Run>& of, bool asleep = false) {
    auto port = std::make_shared<Hungry>(*plan_);
    port->executor = &executor_;
    if (asleep) port->sleep(true);
    port->stream = executor_.open_stream(of, port);
    executor_.wake(port->stream);  // what it freed before it knew its number
    return port;
  }

  SystemClock clock_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<CostlySource> source_ = std::make_shared<CostlySource>();
  Executor executor_{ExecutorOptions{.threads = GetParam()}};
};

TEST_P(FairShareTest, DividesCpuTimeByWeight) {
  const auto heavy = start(run({.weight = 3}));
  const auto light = start(run({.weight = 1}));
  light->wait_for_rows(100);
  const std::uint64_t heavy_before = heavy->rows();
  const std::uint64_t light_before = light->rows();
  light->wait_for_rows(light_before + 500);
  const double ratio = static_cast<double>(heavy->rows() - heavy_before) /
                       static_cast<double>(light->rows() - light_before);
  EXPECT_NEAR(ratio, 3.0, 0.6);
}

TEST_P(FairShareTest, TakesAnotherWeightFromTheNextRowOn) {
  const auto first = run({.weight = 1});
  const auto one = start(first);
  const auto other = start(run({.weight = 1}));
  one->wait_for_rows(100);
  executor_.set_limits(*first, {.weight = 4, .workers = 0});
  other->wait_for_rows(other->rows() + 50);
  const std::uint64_t one_before = one->rows();
  const std::uint64_t other_before = other->rows();
  other->wait_for_rows(other_before + 300);
  const double ratio = static_cast<double>(one->rows() - one_before) /
                       static_cast<double>(other->rows() - other_before);
  EXPECT_NEAR(ratio, 4.0, 1.0);
}

TEST_P(FairShareTest, OwesNothingToARunThatHadNothingToDo) {
  const auto busy = start(run());
  const auto idle = start(run(), /*asleep=*/true);
  busy->wait_for_rows(1500);
  idle->sleep(false);
  idle->wait_for_rows(4 * kRows);
  const std::uint64_t busy_before = busy->rows();
  idle->wait_for_rows(600);
  // It may catch up on 20 ms of the 300: then both have the same.
  EXPECT_GE(busy->rows() - busy_before, 300U);
}

TEST_P(FairShareTest, GivesTheWholePoolToTheOnlyRunWithWork) {
  const auto light = start(run({.weight = 0.001}));
  const auto heavy = start(run({.weight = 1000}), /*asleep=*/true);
  light->wait_for_rows(400);
  // Rows wait for each other now: they go on only if every worker makes one of the light run.
  source_->count_anew(static_cast<int>(GetParam()));
  light->wait_for_rows(light->rows() + 200);
  EXPECT_EQ(source_->most_at_once(), static_cast<int>(GetParam()));
  EXPECT_EQ(heavy->rows(), 0U);
}

TEST_P(FairShareTest, LetsNoMoreWorkersAtARunThanItMayHave) {
  const auto limited = run({.weight = 1, .workers = 1});
  const auto port = start(limited);
  port->wait_for_rows(200);
  EXPECT_EQ(source_->most_at_once(), 1);
  executor_.set_limits(*limited, {.weight = 1, .workers = 0});
  // Rows wait for each other now: they go on only if the pool is theirs again.
  source_->count_anew(static_cast<int>(GetParam()));
  port->wait_for_rows(port->rows() + 200);
  EXPECT_EQ(source_->most_at_once(), static_cast<int>(GetParam()));
}

TEST_P(FairShareTest, TakesAStagesConcurrencyWhileItRuns) {
  const auto tuned = run();
  const auto port = start(tuned);
  port->wait_for_rows(100);
  executor_.tune(*tuned, tuned->fetch_concurrency(), 1);
  port->wait_for_rows(port->rows() + 10 * kRows);  // what was under way is through
  source_->count_anew();
  port->wait_for_rows(port->rows() + 200);
  EXPECT_EQ(source_->most_at_once(), 1);
  executor_.tune(*tuned, tuned->fetch_concurrency(), 0);
  source_->count_anew(static_cast<int>(GetParam()));
  port->wait_for_rows(port->rows() + 200);
  EXPECT_EQ(source_->most_at_once(), static_cast<int>(GetParam()));
}

// Keeps the workers that its rows have until let_go(); meanwhile a row's time passes by hand.
class KeptRows final : public FakeSource {
 public:
  KeptRows() : FakeSource(numbered(kItems)) {}

  Result<source::FetchState> fetch(std::uint64_t item,
                                   std::span<const source::PartRequest> requests,
                                   source::FetchedItem& out, source::FetchSink& sink,
                                   std::uint64_t token) override {
    {
      MutexLock lock(mutex_);
      ++kept_;
      changed_.notify_all();
      const int round = round_;
      while (keeps_ && round == round_) changed_.wait(mutex_);
      --kept_;
    }
    return FakeSource::fetch(item, requests, out, sink, token);
  }

  void wait_for_kept(int rows) {
    MutexLock lock(mutex_);
    while (kept_ < rows) changed_.wait(mutex_);
  }
  int kept() {
    MutexLock lock(mutex_);
    return kept_;
  }
  // Those that it has; `keeps`: not the next ones.
  void let_go(bool keeps) {
    MutexLock lock(mutex_);
    keeps_ = keeps;
    ++round_;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool keeps_ SPDLD_GUARDED_BY(mutex_) = true;
  int round_ SPDLD_GUARDED_BY(mutex_) = 0;
  int kept_ SPDLD_GUARDED_BY(mutex_) = 0;
};

// The parameter: how many workers may have rows ahead of need.
class LongRowsTest : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr int kWorkers = 3;

  void SetUp() override {
    auto plan = testing::compile("  - fetch\n", "batch: {size: 4, max_bytes: 1KiB}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    short_ = start(std::make_shared<CostlySource>(), short_clock_);
    short_->wait_for_rows(kRows);
  }
  void TearDown() override {
    rows_->let_go(false);
    executor_.stop();
  }
  std::shared_ptr<Hungry> start(std::shared_ptr<source::Source> source, const Clock& clock) {
    auto port = std::make_shared<Hungry>(*plan_);
    port->executor = &executor_;
    port->stream =
        executor_.open_stream(std::make_shared<engine::Run>(
                                  plan_, std::move(source), source::Sampler(kItems, Shuffle{}, 1),
                                  1, RunPool{kWorkers}, RunLimits{}, clock),
                              port);
    executor_.wake(port->stream);
    return port;
  }
  // Workers that may have long rows beside short ones.
  static int most_long() { return GetParam() < kWorkers ? 1 : kWorkers - 1; }
  // No more rows can be begun before others have had the last worker.
  void expect_one_worker_left() {
    rows_->wait_for_kept(most_long());
    short_->sleep(false);
    short_->wait_for_rows(short_->rows() + 20 * kRows);
    EXPECT_EQ(rows_->kept(), most_long());
    short_->sleep(true);
    short_->wait_for_rest();
  }

  testing::HandClock short_clock_;
  testing::HandClock long_clock_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<KeptRows> rows_ = std::make_shared<KeptRows>();
  std::shared_ptr<Hungry> short_;
  Executor executor_{ExecutorOptions{.threads = kWorkers, .ahead = GetParam()}};
};

TEST_P(LongRowsTest, LeaveOneWorkerToARunThatHadRowsOfLate) {
  short_->sleep(true);
  short_->wait_for_rest();
  const auto port = start(rows_, long_clock_);
  expect_one_worker_left();  // nothing is known of the rows yet
  for (int round = 0; round < 4; ++round) {
    long_clock_.advance(std::chrono::milliseconds(100));
    rows_->let_go(true);
    expect_one_worker_left();
  }
}

TEST_P(LongRowsTest, HaveAllWorkersOnceNobodyElseHadRowsForASecond) {
  short_->sleep(true);
  short_->wait_for_rest();
  const auto port = start(rows_, long_clock_);
  expect_one_worker_left();
  short_clock_.advance(std::chrono::seconds(1));
  long_clock_.advance(std::chrono::seconds(1));
  rows_->let_go(true);
  rows_->wait_for_kept(static_cast<int>(GetParam()));
}

TEST_P(LongRowsTest, AreForgottenWhenRowsAreShortAgain) {
  short_->sleep(true);
  short_->wait_for_rest();
  const auto port = start(rows_, long_clock_);
  expect_one_worker_left();
  long_clock_.advance(std::chrono::milliseconds(200));
  rows_->let_go(true);
  expect_one_worker_left();
  rows_->let_go(false);
  port->wait_for_rows(port->rows() + 32 * kRows);  // short ones
  rows_->let_go(true);
  rows_->wait_for_kept(static_cast<int>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Ahead, LongRowsTest, ::testing::Values(1U, 2U, 3U));
INSTANTIATE_TEST_SUITE_P(Workers, FairShareTest, ::testing::Values(1U, 3U));

}  // namespace
}  // namespace spdld::engine

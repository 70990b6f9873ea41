// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
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

// Whatever lets workers have more to do wakes as many as it admits, though those that are awake
// already are kept by their rows. Each test stands still for ever if one of them sleeps on.
namespace spdld::engine {
namespace {

using testing::FakeSource;

constexpr unsigned kWorkers = 3;

// So many threads of this process sleep and are workers of an executor.
unsigned sleeping_workers() {
  unsigned sleeping = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    if (stat.find("(spdld-cpu-") != std::string::npos && stat.find(") S ") != std::string::npos)
      ++sleeping;
  }
  return sleeping;
}

// A dataset whose rows keep the worker that asks for them, or that makes them, until let_go().
class KeepingSource final : public FakeSource {
 public:
  KeepingSource() : FakeSource(numbered(kItems)) {}

  enum class Keeps { kNobody, kWhoAsks, kWhoMakes };

  Value value(std::uint64_t item, std::size_t value) const override {
    keep_if(Keeps::kWhoMakes);
    return FakeSource::value(item, value);
  }
  Result<source::FetchState> fetch(std::uint64_t item,
                                   std::span<const source::PartRequest> requests,
                                   source::FetchedItem& out, source::FetchSink& sink,
                                   std::uint64_t token) override {
    {
      MutexLock lock(mutex_);
      ++asked_;
      changed_.notify_all();
    }
    keep_if(Keeps::kWhoAsks);
    return FakeSource::fetch(item, requests, out, sink, token);
  }

  void keep(Keeps keeps) {
    MutexLock lock(mutex_);
    keeps_ = keeps;
    changed_.notify_all();
  }
  void let_go() { keep(Keeps::kNobody); }
  void wait_for_kept(unsigned count) {
    MutexLock lock(mutex_);
    while (kept_ < count) changed_.wait(mutex_);
  }
  unsigned kept() {
    MutexLock lock(mutex_);
    return kept_;
  }
  void wait_for_asked(unsigned count) {
    MutexLock lock(mutex_);
    while (asked_ < count) changed_.wait(mutex_);
  }

 private:
  void keep_if(Keeps keeps) const {
    MutexLock lock(mutex_);
    if (keeps_ != keeps) return;
    ++kept_;
    changed_.notify_all();
    while (keeps_ == keeps) changed_.wait(mutex_);
    --kept_;
  }

  mutable Mutex mutex_;
  mutable CondVar changed_;
  Keeps keeps_ SPDLD_GUARDED_BY(mutex_) = Keeps::kNobody;
  mutable unsigned kept_ SPDLD_GUARDED_BY(mutex_) = 0;
  unsigned asked_ SPDLD_GUARDED_BY(mutex_) = 0;
};

using Keeps = KeepingSource::Keeps;

// Has so many batches to be made, each in a slot of its own, once it is given some.
class Batches final : public StreamPort {
 public:
  Batches(const Plan& plan, std::size_t most) : memory_(most) {
    for (auto& slot : memory_) slot.resize(plan.layout.slot_bytes());
  }

  std::optional<BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (next_ == granted_) return std::nullopt;
    const std::uint64_t step = next_++;
    return BatchOrder{.epoch = 0,
                      .step = step,
                      .rows = {.first = step * kRows, .rows = kRows, .valid = kRows},
                      .slot = memory_[step].data()};
  }
  void commit(const BatchOrder&) override {
    if (on_commit) on_commit();
    abandon({});
  }
  void abandon(const BatchOrder&) override {
    MutexLock lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  Status may_replace(const SampleFailure&) override { return {}; }
  void fail(const StreamFailure& failure) override { ADD_FAILURE() << failure.status.message(); }

  void grant(std::size_t batches) {
    MutexLock lock(mutex_);
    granted_ += batches;
  }
  std::size_t ended() {
    MutexLock lock(mutex_);
    return ended_;
  }
  void wait_for_ended(std::size_t count) {
    MutexLock lock(mutex_);
    while (ended_ < count) changed_.wait(mutex_);
  }

  std::function<void()> on_commit;

 private:
  std::vector<std::vector<std::byte>> memory_;
  Mutex mutex_;
  CondVar changed_;
  std::size_t granted_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::size_t next_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::size_t ended_ SPDLD_GUARDED_BY(mutex_) = 0;
};

class ExecutorWakeTest : public ::testing::Test {
 protected:
  explicit ExecutorWakeTest(ExecutorOptions options = {.threads = kWorkers})
      : executor_(std::move(options)) {}
  void SetUp() override {
    auto plan = testing::compile("  - fetch\n", "batch: {size: 4, max_bytes: 1KiB}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    port_ = std::make_shared<Batches>(*plan_, 8);
    run_ = std::make_shared<engine::Run>(plan_, source_, source::Sampler(kItems, Shuffle{}, 1), 1,
                                         RunPool{kWorkers}, RunLimits{}, clock_);
  }
  void TearDown() override { executor_.stop(); }
  void start(std::size_t batches) {
    port_->grant(batches);
    stream_ = executor_.open_stream(run_, port_);
  }
  // What keeps a worker counts, too.
  static void wait_until_all_sleep() {
    while (sleeping_workers() < kWorkers) {
    }
  }

  SystemClock clock_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<KeepingSource> source_ = std::make_shared<KeepingSource>();
  std::shared_ptr<Batches> port_;
  std::shared_ptr<engine::Run> run_;
  StreamId stream_ = 0;
  Executor executor_;
};

TEST_F(ExecutorWakeTest, HigherStageConcurrencyWakesAllWorkersThatItAdmits) {
  source_->keep(Keeps::kWhoAsks);
  executor_.tune(*run_, run_->fetch_concurrency(), 1);
  start(2);
  source_->wait_for_kept(1);
  wait_until_all_sleep();
  executor_.tune(*run_, run_->fetch_concurrency(), 0);
  source_->wait_for_kept(kWorkers);
  source_->let_go();
  port_->wait_for_ended(2);
}

TEST_F(ExecutorWakeTest, HigherLimitOfWorkersWakesAllThatItAdmits) {
  source_->keep(Keeps::kWhoAsks);
  executor_.set_limits(*run_, {.weight = 1, .workers = 1});
  start(2);
  source_->wait_for_kept(1);
  wait_until_all_sleep();
  executor_.set_limits(*run_, {.weight = 1, .workers = 2});
  source_->wait_for_kept(2);
  wait_until_all_sleep();
  executor_.set_limits(*run_, {.weight = 1, .workers = 0});
  source_->wait_for_kept(kWorkers);
  source_->let_go();
  port_->wait_for_ended(2);
}

TEST_F(ExecutorWakeTest, MoreThreadsTakeUpRowsAtOnceAndFewerMakeTheRest) {
  Executor executor({.threads = 1, .most_threads = kWorkers});
  source_->keep(Keeps::kWhoAsks);
  port_->grant(2);
  const StreamId stream = executor.open_stream(run_, port_);
  source_->wait_for_kept(1);
  EXPECT_TRUE(executor.set_threads(kWorkers).ok());
  source_->wait_for_kept(kWorkers);
  EXPECT_TRUE(executor.set_threads(1).ok());  // the others end once they are let go
  source_->let_go();
  port_->wait_for_ended(2);
  EXPECT_EQ(executor.threads(), 1U);
  EXPECT_TRUE(executor.set_threads(2).ok());
  port_->grant(2);
  executor.wake(stream);
  port_->wait_for_ended(4);
}

TEST_F(ExecutorWakeTest, HigherFetchConcurrencyWakesAWorker) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  executor_.tune(*run_, 1, 0);
  start(2);
  source_->wait_for_readers(1);
  wait_until_all_sleep();
  executor_.tune(*run_, 5, 0);
  source_->wait_for_readers(5);
  executor_.tune(*run_, 8, 0);
  source_->wait_for_readers(8);
  source_->answer();
  port_->wait_for_ended(2);
}

TEST_F(ExecutorWakeTest, BytesThatComeWakeAWorkerForThemAndOneForTheNextFetch) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  source_->keep(Keeps::kWhoMakes);
  executor_.tune(*run_, 1, 1);  // so that no two workers ask at once
  start(1);
  source_->wait_for_readers(1);
  wait_until_all_sleep();
  executor_.tune(*run_, 1, 0);  // lets nobody do more, while the fetch lasts
  EXPECT_EQ(source_->answer(), 1U);
  source_->wait_for_kept(1);  // by the row that has come
  source_->wait_for_readers(1);
  source_->let_go();
  while (port_->ended() < 1) source_->answer();
}

TEST_F(ExecutorWakeTest, OneBatchThatIsOpenedWakesAWorkerForEachOfItsRows) {
  source_->keep(Keeps::kWhoAsks);
  start(0);
  wait_until_all_sleep();
  port_->grant(1);
  executor_.wake(stream_);
  source_->wait_for_kept(kWorkers);
  source_->let_go();
  port_->wait_for_ended(1);
}

TEST_F(ExecutorWakeTest, ARowsEndWakesAnotherWorkerWhileItsOwnTellsTheBatchsEnd) {
  executor_.tune(*run_, run_->fetch_concurrency(), 1);
  port_->on_commit = [this] { source_->wait_for_asked(kRows + 1); };  // a row of the next batch
  start(0);
  wait_until_all_sleep();
  port_->grant(2);
  executor_.wake(stream_);
  port_->wait_for_ended(2);
}

// One worker alone may have rows while nobody lacks a batch.
class YieldTest : public ExecutorWakeTest {
 protected:
  YieldTest() : ExecutorWakeTest({.threads = kWorkers, .ahead = 1}) {}
  void wait_until_others_yield() {
    const auto yielded = [this] { return executor_.worker_time().of(Idle::kYield); };
    const auto before = yielded();
    while (yielded() == before) std::this_thread::yield();
  }
  void expect_one_worker_makes(std::size_t batches) {
    source_->keep(Keeps::kWhoAsks);
    start(batches);
    source_->wait_for_kept(1);
    wait_until_others_yield();
    wait_until_all_sleep();
    EXPECT_EQ(source_->kept(), 1u);
    source_->let_go();
    port_->wait_for_ended(batches);
  }
};

TEST_F(YieldTest, OneWorkerMakesAllBatchesWhileNobodyLacksOne) { expect_one_worker_makes(3); }

TEST_F(YieldTest, OneWorkerMakesAllWhereTheBatchThatIsLackingWaitsForNoWorker) {
  const auto without_work = std::make_shared<Batches>(*plan_, 0);
  const StreamId other = executor_.open_stream(run_, without_work);
  const Executor::Starving starving(executor_, without_work);
  expect_one_worker_makes(3);
  executor_.close_stream(other);
}

TEST_F(YieldTest, ALackingBatchWakesAllWorkers) {
  source_->keep(Keeps::kWhoAsks);
  start(3);
  source_->wait_for_kept(1);
  wait_until_all_sleep();
  const Executor::Starving starving(executor_, port_);
  source_->wait_for_kept(kWorkers);
  source_->let_go();
  port_->wait_for_ended(3);
}

TEST_F(YieldTest, WorkersYieldOnceTheLastOneHasItsBatch) {
  auto first = std::make_unique<Executor::Starving>(executor_, port_);
  auto second = std::make_unique<Executor::Starving>(executor_, port_);
  first.reset();
  source_->keep(Keeps::kWhoAsks);
  start(1);
  source_->wait_for_kept(kWorkers);
  second.reset();
  source_->let_go();
  port_->wait_for_ended(1);
  source_->keep(Keeps::kWhoAsks);
  port_->grant(2);
  executor_.wake(stream_);
  source_->wait_for_kept(1);
  wait_until_others_yield();
  EXPECT_EQ(source_->kept(), 1u);
  source_->let_go();
  port_->wait_for_ended(3);
}

TEST_F(YieldTest, FetchedBytesWakeNoSecondWorkerWhileNoBatchIsLacking) {
  for (std::uint64_t item = 0; item < kItems; ++item) source_->hold(item);
  start(1);
  source_->wait_for_readers(kRows);
  source_->keep(Keeps::kWhoMakes);
  EXPECT_EQ(source_->answer(), kRows);
  source_->wait_for_kept(1);
  wait_until_others_yield();
  EXPECT_EQ(source_->kept(), 1u);
  source_->let_go();
  port_->wait_for_ended(1);
}

TEST_F(YieldTest, ExecutorStopsWhileWorkersYield) {
  source_->keep(Keeps::kWhoAsks);
  start(3);
  source_->wait_for_kept(1);
  wait_until_others_yield();
  std::thread stops([this] { executor_.stop(); });
  source_->let_go();
  stops.join();
  EXPECT_EQ(source_->kept(), 0u);
}

}  // namespace
}  // namespace spdld::engine

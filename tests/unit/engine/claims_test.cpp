// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/executor.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/slot_reader.h"

// Rows so light that a worker claims many of them at once.
namespace spdld::engine {
namespace {

using testing::FakeSource;

constexpr std::uint64_t kLightItems = 3000;
constexpr std::uint64_t kBatchRows = 300;

// Every item at hand is brought with its neighbours; some are held, some fail.
class LightSource final : public FakeSource {
 public:
  LightSource() : FakeSource(numbered(kLightItems)) {}

  Value value(std::uint64_t item, std::size_t value) const override {
    if (on_value) on_value(item);
    return FakeSource::value(item, value);
  }
  void bring_at_hand(std::span<source::WantedItem> items,
                     std::span<const source::PartRequest> requests) override {
    most_at_once = std::max(most_at_once.load(), items.size());
    for (source::WantedItem& wanted : items) {
      if (!at_hand || apart.contains(wanted.item)) continue;
      NoSink sink;
      wanted.brought = FakeSource::fetch(wanted.item, requests, *wanted.out, sink, 0).has_value();
    }
  }

  void hold(std::uint64_t item) {
    FakeSource::hold(item);
    apart.insert(item);
  }
  void fail(std::uint64_t item, Status status) {
    FakeSource::fail(item, std::move(status));
    apart.insert(item);
  }

  std::set<std::uint64_t> apart;
  bool at_hand = true;
  std::atomic<std::size_t> most_at_once = 0;
  std::function<void(std::uint64_t item)> on_value;

 private:
  struct NoSink final : source::FetchSink {
    void fetched(std::uint64_t, Status) override { ADD_FAILURE() << "an item that is at hand"; }
  };
};

class ClaimsTest : public ::testing::TestWithParam<unsigned> {
 protected:
  ClaimsTest() {
    auto plan = testing::compile("  - fetch: {concurrency: 64}\n",
                                 "batch: {size: 300, max_bytes: 64KiB}\n"
                                 "on_error: {decode: replace}\n");
    EXPECT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
  }

  std::shared_ptr<SlotReader> start(std::uint64_t steps) {
    auto reader = std::make_shared<SlotReader>(plan_, steps);
    run_ = std::make_shared<engine::Run>(plan_, source_, source::Sampler(kLightItems, Shuffle{}, 1),
                                         1, RunPool{GetParam()}, RunLimits{}, clock_);
    stream_ = executor_.open_stream(run_, reader);
    return reader;
  }
  static void expect_rows(const SlotReader& reader, std::uint64_t step) {
    for (std::uint64_t row = step * kBatchRows; row < (step + 1) * kBatchRows; ++row)
      ASSERT_EQ(reader.row(row), "item-" + std::to_string(row));
  }

  SystemClock clock_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<LightSource> source_ = std::make_shared<LightSource>();
  std::shared_ptr<engine::Run> run_;
  StreamId stream_ = 0;
  Executor executor_{ExecutorOptions{.threads = GetParam()}};
};

TEST_P(ClaimsTest, OfLightRowsAreMany) {
  const auto reader = start(kLightItems / kBatchRows);
  reader->wait_for_end(kLightItems / kBatchRows);
  for (std::uint64_t step = 0; step < kLightItems / kBatchRows; ++step) expect_rows(*reader, step);
  EXPECT_GT(source_->most_at_once, 1U);
}

TEST_P(ClaimsTest, CountEachRowOnceThoughSomeGoBackUnbegun) {
  // Rows after it are worth no claim of as many as those before were.
  source_->on_value = [&](std::uint64_t item) {
    if (item % 600 != 450) return;
    const auto until = thread_cpu_time() + std::chrono::milliseconds(2);
    while (thread_cpu_time() < until) {
    }
  };
  const auto reader = start(kLightItems / kBatchRows);
  reader->wait_for_end(kLightItems / kBatchRows);
  for (std::uint64_t step = 0; step < kLightItems / kBatchRows; ++step) expect_rows(*reader, step);
  EXPECT_EQ(run_->fetch_stats().tasks(), kLightItems);
  EXPECT_EQ(run_->process_stats().tasks(), kLightItems);
  EXPECT_EQ(run_->fetch_stats().snapshot().in_flight, 0U);
}

TEST_P(ClaimsTest, AreLeftByRowsThatWaitForTheirBytes) {
  for (std::uint64_t item = kBatchRows; item < 2 * kBatchRows; item += 7) source_->hold(item);
  const auto reader = start(3);
  while (!reader->has_committed(1)) source_->answer();
  reader->wait_for_end(3);
  for (std::uint64_t step = 0; step < 3; ++step) expect_rows(*reader, step);
}

TEST_P(ClaimsTest, EndWhereNoFurtherRowMayBeFetched) {
  source_->at_hand = false;
  for (std::uint64_t item = 0; item < kLightItems; ++item) source_->hold(item);
  const auto reader = start(2);
  source_->wait_for_readers(64);
  std::size_t most = 0;
  while (reader->committed() < 2) most = std::max(most, source_->answer());
  EXPECT_LE(most, 64U + GetParam());
  for (std::uint64_t step = 0; step < 2; ++step) expect_rows(*reader, step);
}

TEST_P(ClaimsTest, GoOnWhereARowOfThemIsReplaced) {
  for (std::uint64_t item = 5; item < kLightItems; item += 50)
    source_->fail(item, Status(Code::kDataLoss, "bad"));
  const auto reader = start(kLightItems / kBatchRows);
  reader->wait_for_end(kLightItems / kBatchRows);
  for (std::uint64_t row = 0; row < kLightItems; ++row) {
    if (row % 50 == 5) {
      EXPECT_NE(reader->row(row), "item-" + std::to_string(row));
    } else {
      EXPECT_EQ(reader->row(row), "item-" + std::to_string(row));
    }
  }
}

TEST_P(ClaimsTest, EndWithTheRowThatFailsTheStream) {
  source_->fail(2 * kBatchRows + 100, Status(Code::kUnavailable, "gone"));
  const auto reader = start(kLightItems / kBatchRows);
  while (reader->failed().ok()) std::this_thread::yield();
  executor_.close_stream(stream_);
  executor_.stop();
  EXPECT_FALSE(reader->has_committed(2));
}

TEST_P(ClaimsTest, EndWhereTheirBatchIsGivenUp) {
  std::binary_semaphore in_row{0};
  std::binary_semaphore go_on{0};
  source_->on_value = [&](std::uint64_t item) {
    if (item != 2 * kBatchRows + 50) return;
    in_row.release();
    go_on.acquire();
  };
  const auto reader = start(4);
  in_row.acquire();
  executor_.cancel(stream_, 0, 2);
  go_on.release();
  reader->wait_for_end(4);
  EXPECT_FALSE(reader->has_committed(2));
  EXPECT_TRUE(reader->has_committed(1));
  expect_rows(*reader, 1);
}

TEST_P(ClaimsTest, LeaveEveryRowMadeOnceWhateverComesBetween) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    source_ = std::make_shared<LightSource>();
    source_->at_hand = random() % 4 != 0;
    for (std::uint64_t item = 0; item < kLightItems; ++item) {
      if (random() % 40 == 0) source_->hold(item);
    }
    const std::uint64_t steps = kLightItems / kBatchRows;
    const auto reader = start(steps);
    const std::uint64_t cancelled = random() % steps;
    if (random() % 2 == 0) executor_.cancel(stream_, 0, cancelled);
    std::atomic<bool> ended = false;
    std::thread answers([&] {
      while (!ended) source_->answer();
    });
    reader->wait_for_end(steps);
    ended = true;
    answers.join();
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (reader->has_committed(step)) expect_rows(*reader, step);
    }
    executor_.close_stream(stream_);
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, ClaimsTest, ::testing::Values(1U, 4U));

}  // namespace
}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
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
#include "tests/unit/engine/fake_caller.h"
#include "tests/unit/engine/slot_reader.h"

// Rows that a function of the user's is given and gives back.
namespace spdld::engine {
namespace {

using testing::FakeSource;

constexpr std::uint64_t kCalled = 600;
constexpr std::uint64_t kCalledRows = 30;

// Gives back the bytes with "!" behind them, and twice the number.
Status shout(CallRow& row) {
  const std::string text = text_of(row.arguments[0]) + "!";
  const std::int64_t twice = 2 * number_of(row.arguments[1]);
  put(row.answers[0], text.data(), text.size());
  put(row.answers[1], &twice, sizeof twice);
  return {};
}

class CallsTest : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr const char* kShout =
      "  - python: {call: 'm:shout', in: [image, label], out: {image: bytes, twice: int64}, "
      "concurrency: 2}\n";

  std::shared_ptr<SlotReader> start(const std::string& calls, RowCallers callers,
                                    std::uint64_t steps = kCalled / kCalledRows) {
    auto plan =
        testing::compile("  - fetch: {concurrency: 64}\n" + calls,
                         "batch: {size: 30, max_bytes: 64KiB}\n", testing::labelled_images());
    EXPECT_TRUE(plan) << plan.error().message();
    auto reader = std::make_shared<SlotReader>(*plan, steps);
    for (std::size_t i = 0; i < (*plan)->tensors.size(); ++i) fields_[(*plan)->tensors[i].name] = i;
    run_ =
        std::make_shared<engine::Run>(*plan, source_, source::Sampler(kCalled, Shuffle{}, 1), 1,
                                      RunPool{2}, RunLimits{}, clock_, nullptr, std::move(callers));
    stream_ = executor_.open_stream(run_, reader);
    return reader;
  }
  // Not the run's own: a run may die on a thread of its caller.
  std::shared_ptr<FakeCaller> caller(FakeCaller::Function function) {
    callers_.push_back(std::make_unique<FakeCaller>(GetParam(), std::move(function)));
    return {std::shared_ptr<void>(), callers_.back().get()};
  }
  void expect_shouted(const SlotReader& reader, std::uint64_t position, std::uint64_t item) {
    EXPECT_EQ(reader.row(position, fields_["image"]), "item-" + std::to_string(item) + "!");
    EXPECT_EQ(reader.value<std::int64_t>(position, fields_["twice"]),
              static_cast<std::int64_t>(20 * item));
  }

  SystemClock clock_;
  std::vector<std::unique_ptr<FakeCaller>> callers_;
  std::map<std::string, std::size_t> fields_;
  std::shared_ptr<FakeSource> source_ = std::make_shared<FakeSource>(FakeSource::numbered(kCalled));
  std::shared_ptr<engine::Run> run_;
  StreamId stream_ = 0;
  Executor executor_{ExecutorOptions{.threads = 2}};
};

TEST_P(CallsTest, GiveEachRowToTheFunctionOnce) {
  const auto shouts = caller(shout);
  const auto reader = start(kShout, {shouts});
  reader->wait_for_end(kCalled / kCalledRows);
  EXPECT_EQ(reader->committed(), kCalled / kCalledRows);
  for (std::uint64_t row = 0; row < kCalled; ++row) expect_shouted(*reader, row, row);
  EXPECT_EQ(shouts->calls, static_cast<int>(kCalled));
  EXPECT_EQ(run_->call_stats(0).tasks(), kCalled);
  EXPECT_EQ(run_->call_stats(0).snapshot().in_flight, 0U);
  EXPECT_EQ(run_->process_stats().tasks(), kCalled);
}

TEST_P(CallsTest, GiveWhatOneFunctionGaveBackToTheNext) {
  const auto first = caller(shout);
  const auto second = caller([](CallRow& row) -> Status {
    const std::string text =
        text_of(row.arguments[0]) + std::to_string(number_of(row.arguments[1]));
    put(row.answers[0], text.data(), text.size());
    return {};
  });
  const auto reader =
      start(std::string(kShout) +
                "  - python: {call: 'm:join', in: [image, twice], out: {joined: text}}\n",
            {first, second});
  reader->wait_for_end(kCalled / kCalledRows);
  ASSERT_EQ(fields_.size(), 1U);
  for (std::uint64_t row = 0; row < kCalled; ++row)
    EXPECT_EQ(reader->row(row), "item-" + std::to_string(row) + "!" + std::to_string(20 * row));
}

TEST_P(CallsTest, GiveAFunctionNumbersOfTheRowsPlace) {
  std::map<std::uint64_t, std::uint64_t> positions;  // by item
  Mutex mutex;
  const auto notes = caller([&](CallRow& row) {
    MutexLock lock(mutex);
    positions[row.item] = row.position;
    EXPECT_EQ(row.seed, 1U);
    return shout(row);
  });
  const auto reader = start(kShout, {notes});
  reader->wait_for_end(kCalled / kCalledRows);
  MutexLock lock(mutex);
  ASSERT_EQ(positions.size(), kCalled);
  for (const auto& [item, position] : positions) EXPECT_EQ(item, position);
}

TEST_P(CallsTest, ReplaceARowThatTheFunctionFindsBad) {
  const auto picky = caller([](CallRow& row) -> Status {
    if (row.item % 100 == 7) return {Code::kDataLoss, "it is blurred"};
    return shout(row);
  });
  const auto reader = start(kShout, {picky});
  reader->wait_for_end(kCalled / kCalledRows);
  EXPECT_TRUE(reader->failed().ok());
  expect_shouted(*reader, 8, 8);
  const source::Sampler sampler(kCalled, Shuffle{}, 1);
  for (std::uint64_t row = 7; row < kCalled; row += 100)
    expect_shouted(*reader, row, sampler.substitute(0, row, 1));
}

TEST_P(CallsTest, ReplaceARowThatTheFunctionRejects) {
  const auto picky = caller([](CallRow& row) -> Status {
    row.rejected = row.item % 100 == 7;
    return row.rejected ? Status() : shout(row);
  });
  const auto reader = start(kShout, {picky});
  reader->wait_for_end(kCalled / kCalledRows);
  EXPECT_TRUE(reader->failed().ok());
  expect_shouted(*reader, 8, 8);
  const source::Sampler sampler(kCalled, Shuffle{}, 1);
  for (std::uint64_t row = 7; row < kCalled; row += 100) {
    expect_shouted(*reader, row, sampler.substitute(0, row, 1));
    EXPECT_TRUE(reader->valid(row));
  }
  EXPECT_EQ(run_->judged().rejected, kCalled / 100);
  EXPECT_EQ(run_->judged().items, kCalled + kCalled / 100);
  EXPECT_EQ(run_->process_stats().snapshot().failures, 0U);
}

TEST_P(CallsTest, LeaveNothingInARowThatTheFunctionRejectsAndThatStays) {
  const auto picky = caller([](CallRow& row) -> Status {
    row.rejected = row.item % 100 == 7;
    return row.rejected ? Status() : shout(row);
  });
  const auto second = caller([](CallRow& row) -> Status {
    const std::int64_t length = static_cast<std::int64_t>(text_of(row.arguments[0]).size());
    put(row.answers[0], &length, sizeof length);
    return {};
  });
  const auto reader = start(
      "  - python: {call: 'm:shout', in: [image, label], rejected: invalid, "
      "out: {image: bytes, twice: int64}}\n"
      "  - python: {call: 'm:length', in: [image], out: {length: int64}}\n",
      {picky, second});
  reader->wait_for_end(kCalled / kCalledRows);
  EXPECT_TRUE(reader->failed().ok());
  for (std::uint64_t row = 0; row < kCalled; ++row) {
    const bool stays = row % 100 != 7;
    EXPECT_EQ(reader->valid(row), stays) << row;
    EXPECT_EQ(reader->item(row), row);
    EXPECT_EQ(reader->value<std::int64_t>(row, fields_["twice"]),
              stays ? static_cast<std::int64_t>(20 * row) : 0);
    EXPECT_EQ(reader->value<std::int64_t>(row, fields_["length"]) > 0, stays);
  }
  EXPECT_EQ(second->calls, static_cast<int>(kCalled - kCalled / 100));
}

TEST_P(CallsTest, EndTheStreamWhereTheFunctionRejectsAll) {
  const auto none = caller([](CallRow& row) -> Status {
    row.rejected = true;
    return {};
  });
  const auto reader = start(kShout, {none});
  while (reader->failed().ok()) std::this_thread::yield();
  EXPECT_EQ(reader->failed().code(), Code::kFailedPrecondition);
  EXPECT_NE(reader->failed().message().find("python: for position"), std::string::npos)
      << reader->failed().message();
}

TEST_P(CallsTest, EndTheStreamOfAFunctionThatRaises) {
  const auto broken = caller([](CallRow& row) -> Status {
    if (row.item == 40) return {Code::kFailedPrecondition, "KeyError: 'x'"};
    return shout(row);
  });
  const auto reader = start(kShout, {broken});
  while (reader->failed().ok()) std::this_thread::yield();
  EXPECT_EQ(reader->failed().code(), Code::kFailedPrecondition);
  EXPECT_EQ(reader->failed().message(), "pipeline 'test', item 40 (fake/40): KeyError: 'x'");
}

TEST_P(CallsTest, TryARowAgainThatMetATransientError) {
  std::vector<std::chrono::nanoseconds> pauses;
  Mutex mutex;
  const auto flaky = caller([&](CallRow& row) -> Status {
    MutexLock lock(mutex);
    if (row.item != 3) {
      EXPECT_EQ(row.pause.count(), 0);
      return shout(row);
    }
    pauses.push_back(row.pause);
    return pauses.size() <= 2 ? Status(Code::kUnavailable, "TimeoutError") : shout(row);
  });
  const auto reader = start(kShout, {flaky});
  reader->wait_for_end(kCalled / kCalledRows);
  for (std::uint64_t row = 0; row < kCalled; ++row) expect_shouted(*reader, row, row);
  EXPECT_EQ(flaky->calls, static_cast<int>(kCalled) + 2);
  MutexLock lock(mutex);
  ASSERT_EQ(pauses.size(), 3U);
  using std::chrono::milliseconds;
  EXPECT_EQ(pauses[0].count(), 0);
  EXPECT_TRUE(pauses[1] >= milliseconds(25) && pauses[1] <= milliseconds(50));
  EXPECT_TRUE(pauses[2] >= milliseconds(50) && pauses[2] <= milliseconds(100));
}

TEST_P(CallsTest, FailARowThatOnlyMeetsTransientErrors) {
  const auto down = caller([](CallRow&) -> Status { return {Code::kUnavailable, "no server"}; });
  const auto reader = start(kShout, {down});
  while (reader->failed().ok()) std::this_thread::yield();
  EXPECT_EQ(reader->failed().code(), Code::kUnavailable);
  EXPECT_NE(reader->failed().message().find("no server, also after 5 retries"), std::string::npos)
      << reader->failed().message();
}

INSTANTIATE_TEST_SUITE_P(AnsweredBy, CallsTest, ::testing::Values(0U, 1U, 3U),
                         [](const auto& threads) {
                           return threads.param == 0 ? std::string("TheCallItself")
                                                     : std::to_string(threads.param) + "Threads";
                         });

class HeldCallsTest : public CallsTest {};

TEST_P(HeldCallsTest, ComeBackWhenTheirBatchesAreGivenUp) {
  const auto held = caller(shout);
  held->hold();
  const auto reader = start(kShout, {held});
  held->wait_for_rows(kCalledRows);
  executor_.close_stream(stream_);
  executor_.stop();
  EXPECT_EQ(reader->committed(), 0U);
}

TEST_P(HeldCallsTest, SayWhatTheyWaitFor) {
  const auto held = caller(shout);
  held->hold();
  const auto reader = start(kShout, {held}, 1);
  held->wait_for_rows(kCalledRows);
  std::string doing;
  while (doing.find("is with a function of yours") == std::string::npos) {
    doing = executor_.headway(stream_).doing;  // a worker may still have a row in hand
    std::this_thread::yield();
  }
  EXPECT_NE(doing.find("for 0 s: start runners"), std::string::npos) << doing;
  while (executor_.head_time(stream_).of(HeadWait::kCalls).count() == 0) std::this_thread::yield();
  held->answer();
  reader->wait_for_end(1);
}

TEST_P(HeldCallsTest, AreBoundByTheProcesses) {
  const auto held = caller(shout);
  held->hold();
  const auto reader = start(kShout, {held});
  held->wait_for_rows(static_cast<std::size_t>(run_->most_called()));
  held->answer();
  reader->wait_for_end(kCalled / kCalledRows);
  EXPECT_EQ(run_->most_called(), 256);  // 128 for each of two
  // What a worker has claimed when the bound is reached, and what had come from the source.
  EXPECT_LE(held->most_at_once, 256U + 64U + 2 * 256U);
}

INSTANTIATE_TEST_SUITE_P(AnsweredBy, HeldCallsTest, ::testing::Values(2U));

}  // namespace
}  // namespace spdld::engine

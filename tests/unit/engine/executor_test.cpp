// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/memory/buffer_memory.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/batches.h"

namespace spdld::engine {
namespace {

using testing::FakeSource;
using ::testing::HasSubstr;

// A consumer with a few slots: keeps what it is given, and gives slots back when told to.
class Consumer final : public StreamPort {
 public:
  Consumer(const Plan& plan, std::size_t slots, std::uint64_t steps)
      : layout_(plan.layout), steps_(steps) {
    for (std::size_t i = 0; i < slots; ++i) {
      memory_.emplace_back(layout_.slot_bytes());
      free_.push_back(memory_.back().data());
    }
  }

  std::optional<BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (free_.empty() || next_ == steps_) return std::nullopt;
    BatchOrder order{.epoch = 0,
                     .step = next_,
                     .rows = {.first = next_ * kRows, .rows = kRows, .valid = kRows},
                     .next_position = (next_ + 1) * kRows,
                     .slot = free_.back(),
                     .ticket = 0};
    free_.pop_back();
    ++next_;
    most_open_ = std::max(most_open_, memory_.size() - free_.size());
    return order;
  }
  void commit(const BatchOrder& order) override {
    MutexLock lock(mutex_);
    std::vector<std::string>& rows = committed_[order.step];
    const wire::FieldLayout& field = layout_.fields()[0];
    for (std::uint64_t row = 0; row < kRows; ++row) {
      std::int64_t range[2];
      std::memcpy(range, order.slot + field.offsets_offset + row * sizeof range[0], sizeof range);
      rows.emplace_back(reinterpret_cast<const char*>(order.slot + field.offset + range[0]),
                        static_cast<std::size_t>(range[1] - range[0]));
      valid_[order.step].push_back(*layout_.row(order.slot, 3, row) == std::byte{1});
    }
    held_.push_back(order.slot);
    changed_.notify_all();
  }
  void abandon(const BatchOrder& order) override {
    MutexLock lock(mutex_);
    abandoned_.insert(order.step);
    free_.push_back(order.slot);
    changed_.notify_all();
  }
  Status may_replace(const SampleFailure& failure) override {
    MutexLock lock(mutex_);
    failures_.push_back(failure);
    changed_.notify_all();
    while (undecided_) changed_.wait(mutex_);
    return refusal_;
  }
  void fail(const StreamFailure& failure) override {
    MutexLock lock(mutex_);
    failed_ = failure.status;
    next_ = steps_;
    changed_.notify_all();
  }

  void refuse_substitutes(Status status) { refusal_ = std::move(status); }
  // While undecided, a worker waits for the answer.
  void decide(bool decided) {
    MutexLock lock(mutex_);
    undecided_ = !decided;
    changed_.notify_all();
  }
  void wait_for_question() {
    MutexLock lock(mutex_);
    while (failures_.empty()) changed_.wait(mutex_);
  }
  void give_back(std::size_t count) {
    MutexLock lock(mutex_);
    for (; count > 0 && !held_.empty(); --count) {
      free_.push_back(held_.back());
      held_.pop_back();
    }
  }
  std::map<std::uint64_t, std::vector<std::string>> wait_for_batches(std::size_t count) {
    MutexLock lock(mutex_);
    while (committed_.size() < count) changed_.wait(mutex_);
    return committed_;
  }
  Status wait_for_failure() {
    MutexLock lock(mutex_);
    while (failed_.ok()) changed_.wait(mutex_);
    return failed_;
  }
  std::set<std::uint64_t> wait_for_abandoned(std::size_t count) {
    MutexLock lock(mutex_);
    while (abandoned_.size() < count) changed_.wait(mutex_);
    return abandoned_;
  }
  std::vector<SampleFailure> failures() {
    MutexLock lock(mutex_);
    return failures_;
  }
  std::vector<bool> valid(std::uint64_t step) {
    MutexLock lock(mutex_);
    return valid_[step];
  }
  std::size_t most_open() {
    MutexLock lock(mutex_);
    return most_open_;
  }

 private:
  const BatchLayout& layout_;
  const std::uint64_t steps_;
  std::vector<std::vector<std::byte>> memory_;
  Status refusal_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::byte*> free_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::byte*> held_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t next_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool undecided_ SPDLD_GUARDED_BY(mutex_) = false;
  std::size_t most_open_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::vector<std::string>> committed_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::vector<bool>> valid_ SPDLD_GUARDED_BY(mutex_);
  std::set<std::uint64_t> abandoned_ SPDLD_GUARDED_BY(mutex_);
  std::vector<SampleFailure> failures_ SPDLD_GUARDED_BY(mutex_);
  Status failed_ SPDLD_GUARDED_BY(mutex_);
};

// Answers for item 0 before its fetch() has returned, once another item's reader waits, and returns
// once others have gone on.
class OvertakingSource final : public FakeSource {
 public:
  using FakeSource::FakeSource;

  Result<source::FetchState> fetch(std::uint64_t item, std::span<const source::PartRequest> parts,
                                   source::FetchedItem& out, source::FetchSink& sink,
                                   std::uint64_t token) override {
    auto state = FakeSource::fetch(item, parts, out, sink, token);
    if (item != 0) return state;
    wait_for_readers(1);
    sink.fetched(token, Status());
    wait_for_others();
    return source::FetchState::kPending;
  }

  std::function<void()> wait_for_others;
};

class ExecutorTest : public ::testing::TestWithParam<unsigned> {
 protected:
  // `threads` workers over `items` items, delivered as encoded bytes.
  void start(std::size_t items, const std::string& policy = "") {
    auto plan = testing::compile("  - fetch\n", "batch: {size: 4, max_bytes: 1KiB}\n" + policy);
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    source_ = std::make_shared<FakeSource>(FakeSource::numbered(items));
  }
  std::shared_ptr<engine::Run> run(unsigned threads = GetParam()) {
    return std::make_shared<engine::Run>(plan_, source_,
                                         source::Sampler(source_->size(), Shuffle{}, 1), 1,
                                         RunPool{threads}, RunLimits{}, clock_);
  }

  SystemClock clock_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<FakeSource> source_;
};

TEST_P(ExecutorTest, MakesEveryRowOfEveryStepWhateverTheNumberOfWorkers) {
  start(32);
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  const StreamId stream = executor.open_stream(run(), consumer);
  const auto batches = consumer->wait_for_batches(8);
  for (std::uint64_t step = 0; step < 8; ++step) {
    for (std::uint64_t row = 0; row < kRows; ++row)
      EXPECT_EQ(batches.at(step)[row], "item-" + std::to_string(step * kRows + row));
  }
  executor.close_stream(stream);
}

TEST_P(ExecutorTest, BeginsNothingThatHasNoSlotToGoTo) {
  start(32);
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 2, 8);
  const StreamId stream = executor.open_stream(run(), consumer);
  consumer->wait_for_batches(2);
  for (std::size_t done = 2; done < 8; ++done) {
    consumer->give_back(1);
    executor.wake(stream);
    consumer->wait_for_batches(done + 1);
  }
  EXPECT_LE(consumer->most_open(), 2U);
}

TEST_P(ExecutorTest, GoesOnWithOtherRowsWhileOneWaitsForItsBytes) {
  start(32);
  source_->hold(0);
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  const StreamId stream = executor.open_stream(run(), consumer);
  consumer->wait_for_batches(7);
  source_->wait_for_readers(1);
  EXPECT_EQ(source_->answer(), 1U);
  const auto batches = consumer->wait_for_batches(8);
  EXPECT_EQ(batches.at(0)[0], "item-0");
  executor.close_stream(stream);
}

TEST_P(ExecutorTest, PutsASubstituteWhereTheDataIsBadAndMarksTheRow) {
  start(32);
  source_->fail(5, Status(Code::kDataLoss, "truncated"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), consumer);
  const auto batches = consumer->wait_for_batches(8);
  EXPECT_NE(batches.at(1)[1], "item-5");
  EXPECT_EQ(consumer->valid(1), (std::vector<bool>{true, false, true, true}));
  ASSERT_FALSE(consumer->failures().empty());
  const SampleFailure failure = consumer->failures().front();
  EXPECT_EQ(failure.item, 5U);
  EXPECT_EQ(failure.uri, "fake/5");
  ASSERT_TRUE(failure.replaced_by);
  EXPECT_EQ(batches.at(1)[1], "item-" + std::to_string(*failure.replaced_by));
}

TEST_P(ExecutorTest, FailsTheStreamWhenNoSubstituteMayBeUsed) {
  start(32);
  source_->fail(5, Status(Code::kDataLoss, "truncated"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  consumer->refuse_substitutes(Status(Code::kDataLoss, "the budget is used up"));
  executor.open_stream(run(), consumer);
  EXPECT_EQ(consumer->wait_for_failure().message(), "the budget is used up");
  EXPECT_TRUE(consumer->wait_for_abandoned(1).contains(1));
}

TEST_P(ExecutorTest, NamesTheItemWhenThePolicyIsToFail) {
  start(32, "on_error: {decode: fail}\n");
  source_->fail(5, Status(Code::kDataLoss, "truncated"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), consumer);
  const Status failure = consumer->wait_for_failure();
  EXPECT_THAT(failure.message(), HasSubstr("item 5 (fake/5): truncated"));
  EXPECT_THAT(failure.message(), HasSubstr("decode: replace"));
}

TEST_P(ExecutorTest, NeverReplacesWhatCouldNotBeRead) {
  start(32);
  source_->fail(5, Status(Code::kUnavailable, "I/O error"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), consumer);
  EXPECT_THAT(consumer->wait_for_failure().message(), HasSubstr("item 5 (fake/5): I/O error"));
  EXPECT_TRUE(consumer->failures().empty());
}

TEST_P(ExecutorTest, GivesUpWhenEverySubstituteIsBadToo) {
  start(32);
  for (std::uint64_t item = 0; item < 32; ++item)
    source_->fail(item, Status(Code::kDataLoss, "garbage"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), consumer);
  EXPECT_THAT(consumer->wait_for_failure().message(), HasSubstr("items tried in its place"));
}

TEST_P(ExecutorTest, SaysThatABatchIsTooLargeForItsSlot) {
  start(32);
  source_ = std::make_shared<FakeSource>(std::vector<std::string>(32, std::string(600, 'x')));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), consumer);
  EXPECT_THAT(consumer->wait_for_failure().message(),
              HasSubstr("batch.max_bytes is 1024: raise it"));
}

TEST_P(ExecutorTest, AbandonsWhatIsCancelledAndMakesTheRest) {
  start(32);
  source_->hold(8);  // in step 2
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 3, 3);
  const StreamId stream = executor.open_stream(run(), consumer);
  consumer->wait_for_batches(2);
  source_->wait_for_readers(1);
  executor.cancel(stream, 0, 2);
  source_->answer();
  EXPECT_EQ(consumer->wait_for_abandoned(1), (std::set<std::uint64_t>{2}));
}

// All of the memory for buffers, which the bytes of item 0 take until they are dropped.
class OneBuffer {
 public:
  explicit OneBuffer(FakeSource& source) {
    source.on_given = [this](std::uint64_t item, source::FetchedItem& out) {
      if (item == 0) out.bytes.count(*memory_->take(0, kBytes));
    };
  }
  void wait_until_dropped() {
    std::binary_semaphore dropped(0);
    BufferMemory::Request request(memory_, 0);
    if (!request.take(kBytes, [&] { dropped.release(); })) dropped.acquire();
  }

 private:
  static constexpr std::uint64_t kBytes = 8;
  const std::shared_ptr<BufferMemory> memory_ = std::make_shared<BufferMemory>(kBytes);
};

TEST_P(ExecutorTest, GivesBackTheBytesOfARowThatIsReplacedAfterItsBatchWasCancelled) {
  start(32);
  OneBuffer buffer(*source_);
  source_->fail(0, Status(Code::kDataLoss, "truncated"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 1, 1);
  consumer->decide(false);
  const StreamId stream = executor.open_stream(run(), consumer);
  consumer->wait_for_question();
  executor.cancel(stream, 0, 0);
  consumer->decide(true);
  consumer->wait_for_abandoned(1);
  buffer.wait_until_dropped();
}

TEST_P(ExecutorTest, GivesBackTheBytesThatComeAfterTheirBatchWasCancelled) {
  start(32);
  OneBuffer buffer(*source_);
  source_->hold(0);
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 1, 1);
  const StreamId stream = executor.open_stream(run(), consumer);
  source_->wait_for_readers(1);
  executor.cancel(stream, 0, 0);
  EXPECT_EQ(source_->answer(), 1U);
  consumer->wait_for_abandoned(1);
  buffer.wait_until_dropped();
}

TEST_P(ExecutorTest, AbandonsABatchWhoseStreamIsClosedOnlyWhenItsReadersAreBack) {
  start(32);
  source_->hold(0);
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 1, 1);
  const StreamId stream = executor.open_stream(run(), consumer);
  source_->wait_for_readers(1);
  executor.close_stream(stream);
  EXPECT_EQ(source_->answer(), 1U);
  consumer->wait_for_abandoned(1);
}

TEST_P(ExecutorTest, LetsGoOfARunsSourceUnderNoLock) {
  Executor executor({.threads = GetParam()});
  for (const bool closed_in_time : {true, false}) {
    start(32);
    source_->hold(0);
    std::binary_semaphore gone(0);
    source_->on_destroyed = [&] {
      executor.headway(0);  // as any other thread might ask meanwhile
      gone.release();
    };
    auto consumer = std::make_shared<Consumer>(*plan_, 1, 1);
    const StreamId stream = executor.open_stream(run(), consumer);
    source_->wait_for_readers(1);
    FakeSource& source = *source_;
    source_.reset();
    if (closed_in_time) executor.close_stream(stream);  // the row that comes is the last to go
    source.answer();
    if (!closed_in_time) {
      consumer->wait_for_batches(1);
      executor.close_stream(stream);
    }
    gone.acquire();
  }
}

TEST_P(ExecutorTest, StopsWithBatchesUnderWay) {
  start(32);
  source_->hold(0);
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  {
    Executor executor({.threads = GetParam()});
    executor.open_stream(run(), consumer);
    source_->wait_for_readers(1);
    executor.stop();
    source_->answer();
  }
  EXPECT_TRUE(consumer->wait_for_abandoned(1).contains(0));
}

TEST_P(ExecutorTest, ServesTwoRunsAtOnce) {
  start(32);
  source_->hold(0);  // neither run can finish its first step before the answer
  Executor executor({.threads = GetParam()});
  auto first = std::make_shared<Consumer>(*plan_, 8, 8);
  auto second = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), first);
  executor.open_stream(run(), second);
  // Each run makes its other steps while the other run is unfinished.
  EXPECT_FALSE(first->wait_for_batches(7).contains(0));
  EXPECT_FALSE(second->wait_for_batches(7).contains(0));
  source_->wait_for_readers(2);
  EXPECT_EQ(source_->answer(), 2U);
  first->wait_for_batches(8);
  second->wait_for_batches(8);
}

TEST_P(ExecutorTest, ARunWithoutAFreeSlotStallsItselfAlone) {
  start(32);
  Executor executor({.threads = GetParam()});
  auto stalled = std::make_shared<Consumer>(*plan_, 2, 8);  // it gives no slot back
  auto other = std::make_shared<Consumer>(*plan_, 8, 8);
  const StreamId stream = executor.open_stream(run(), stalled);
  stalled->wait_for_batches(2);
  executor.open_stream(run(), other);
  other->wait_for_batches(8);
  EXPECT_EQ(stalled->wait_for_batches(2).size(), 2U) << "it is unfinished";
  stalled->give_back(2);
  executor.wake(stream);
  stalled->wait_for_batches(4);
}

TEST_P(ExecutorTest, ARunWithManyRowsToFetchLeavesAFewToEachOther) {
  Executor executor({.threads = 1, .many_fetches = 10, .few_fetches = 2});
  start(32);
  for (std::uint64_t item = 0; item < 32; ++item) source_->hold(item);
  const auto greedy = source_;
  const auto plan = plan_;
  auto first = std::make_shared<Consumer>(*plan, 8, 8);
  executor.open_stream(run(), first);
  greedy->wait_for_readers(10);

  start(32);
  for (std::uint64_t item = 0; item < 32; ++item) source_->hold(item);
  auto second = std::make_shared<Consumer>(*plan_, 8, 8);
  executor.open_stream(run(), second);
  for (int turn = 0; turn < 16; ++turn) {
    source_->wait_for_readers(2);
    EXPECT_EQ(source_->answer(), 2U);
  }
  second->wait_for_batches(8);
  for (const std::size_t readers : {10U, 10U, 10U, 2U}) {
    greedy->wait_for_readers(readers);
    EXPECT_EQ(greedy->answer(), readers);
  }
  first->wait_for_batches(8);
}

TEST_P(ExecutorTest, TellsWhichItemAStreamWaitsForAndWhetherItComesOn) {
  start(32);
  source_->hold(1);
  source_->hold(6);
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 2, 2);
  const StreamId stream = executor.open_stream(run(), consumer);
  source_->wait_for_readers(2);
  // Until the worker that has asked for the last one is through with it.
  const auto stands = [&](std::uint64_t moves) {
    Executor::Headway headway = executor.headway(stream);
    while (headway.moves < moves || !headway.own ||
           headway.doing.find("being read") == std::string::npos) {
      std::this_thread::yield();
      headway = executor.headway(stream);
    }
    return headway;
  };
  const Executor::Headway before = stands(6);
  EXPECT_THAT(before.doing, HasSubstr("item 1 (fake/1) is being read for"));
  EXPECT_EQ(before.moves, 6U);
  EXPECT_EQ(executor.headway(stream).moves, 6U);
  EXPECT_EQ(source_->answer(), 2U);
  consumer->wait_for_batches(2);
  const Executor::Headway after = executor.headway(stream);
  EXPECT_EQ(after.moves, 10U) << "two that came, and were made";
  EXPECT_EQ(after.doing, "");
  EXPECT_FALSE(after.own);
  EXPECT_EQ(executor.headway(stream + 1).doing, "") << "there is no such stream";
}

TEST_P(ExecutorTest, HeadwayOfAnIdleStreamNamesTheRowOfItsRun) {
  start(32);
  source_->hold(1);
  Executor executor({.threads = GetParam()});
  auto one_run = run();
  auto first = std::make_shared<Consumer>(*plan_, 1, 1);
  auto second = std::make_shared<Consumer>(*plan_, 0, 1);
  executor.open_stream(one_run, first);
  const StreamId stream = executor.open_stream(one_run, second);
  source_->wait_for_readers(1);
  while (executor.headway(stream).doing.find("item 1 (fake/1)") == std::string::npos)
    std::this_thread::yield();
  EXPECT_FALSE(executor.headway(stream).own);
  EXPECT_EQ(executor.headway(stream).moves, 0U);
  EXPECT_EQ(source_->answer(), 1U);
  first->wait_for_batches(1);
}

TEST_P(ExecutorTest, CountsARowWhoseAnswerOvertookItsFetchInItsOwnBatch) {
  start(32);
  const auto overtaking = std::make_shared<OvertakingSource>(FakeSource::numbered(32));
  source_ = overtaking;
  auto consumer = std::make_shared<Consumer>(*plan_, 8, 8);
  // By then a row of another batch has had the task of item 0's.
  std::binary_semaphore overtaken(0);
  overtaking->wait_for_others = [&] {
    consumer->wait_for_batches(7);
    overtaken.release();
  };
  overtaking->hold(1);  // keeps batch 0 from its end
  Executor executor({.threads = GetParam() + 1});
  const StreamId stream = executor.open_stream(run(GetParam() + 1), consumer);
  overtaken.acquire();
  const auto bytes_s = [&] { return executor.head_time(stream).of(HeadWait::kBytes); };
  const auto before = bytes_s();
  while (bytes_s() == before) std::this_thread::yield();
  EXPECT_EQ(overtaking->answer(), 1U);
  EXPECT_EQ(consumer->wait_for_batches(8).at(0)[0], "item-0");
  executor.close_stream(stream);
}

TEST_P(ExecutorTest, NamesTheStageThatHasTheRow) {
  start(32);
  source_->fail(0, Status(Code::kDataLoss, "truncated"));
  Executor executor({.threads = GetParam()});
  auto consumer = std::make_shared<Consumer>(*plan_, 1, 1);
  consumer->decide(false);
  const StreamId stream = executor.open_stream(run(), consumer);
  consumer->wait_for_question();
  Executor::Headway headway = executor.headway(stream);
  EXPECT_TRUE(headway.own);
  EXPECT_THAT(headway.doing, HasSubstr("stage '" + plan_->process.name + "' has had a row for "));
  consumer->decide(true);
  consumer->wait_for_batches(1);
}

INSTANTIATE_TEST_SUITE_P(Workers, ExecutorTest, ::testing::Values(1U, 4U));

}  // namespace
}  // namespace spdld::engine

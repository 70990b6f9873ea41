// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/executor.h"
#include "engine/run.h"
#include "stream/stream.h"
#include "stream/streams.h"
#include "tests/support/clocks.h"
#include "tests/support/fake_source.h"
#include "tests/support/judge.h"
#include "tests/support/pipelines.h"

// What tests of streams have in common: a dataset in memory, and readers that are steered by hand.
namespace spdld::stream::testing {

using spdld::testing::HandClock;
using spdld::testing::Judge;

// A consumer that takes a batch when the test says so.
class Reader final : public StreamReader {
 public:
  struct Batch {
    std::uint64_t lease = 0;
    Index at = 0;
    std::shared_ptr<SlotPool> pool;
    std::string text;  // its rows' bytes, one after the other
    bool shared = false;
    std::vector<engine::SampleFailure> replaced = {};
  };

  Reader(delivery::HolderId holder, JobTag job, std::size_t allowed = 1000)
      : job(job), judge_of(allowed), holder_(holder) {}

  // The batch, once it is there.
  Batch read(Stream& stream, Index at) {
    while (true) {
      std::uint64_t seen = 0;
      {
        MutexLock lock(mutex_);
        seen = told_;
      }
      if (auto batch = poll(stream, at)) return std::move(*batch);
      MutexLock lock(mutex_);
      while (told_ == seen) changed_.wait(mutex_);
    }
  }
  std::optional<Batch> poll(Stream& stream, Index at) {
    auto taken = stream.take(holder_, at);
    if (!taken) return std::nullopt;
    EXPECT_EQ((job::StepAt{taken->order.epoch, taken->order.step}), stream.span().at(at).at());
    return Batch{.lease = taken->lease,
                 .at = at,
                 .pool = stream.pool(),
                 .text = text_of(stream, *taken),
                 .shared = taken->shared,
                 .replaced = std::move(taken->replaced)};
  }
  void release(const Batch& batch) {
    if (batch.pool->release(batch.lease, holder_)) batch.pool->freed();
  }
  // Reads and gives back; the rows.
  std::string pass(Stream& stream, Index at) {
    const Batch batch = read(stream, at);
    release(batch);
    return batch.text;
  }
  Status wait_for_failure() {
    MutexLock lock(mutex_);
    while (!failure_) changed_.wait(mutex_);
    return *failure_;
  }
  bool has_failed() {
    MutexLock lock(mutex_);
    return failure_.has_value();
  }
  int times_displaced() {
    MutexLock lock(mutex_);
    return displaced_;
  }

  delivery::HolderId holder() const override { return holder_; }
  FailureJudge& judge() override { return judge_of; }
  void ready() override {
    MutexLock lock(mutex_);
    ++told_;
    changed_.notify_all();
  }
  void failed(const engine::StreamFailure& failure, const Stream&) override {
    MutexLock lock(mutex_);
    failure_ = failure.status;
    ++told_;
    changed_.notify_all();
  }
  void refused_memory(const Status& why, const Stream& stream) override {
    failed({.status = why}, stream);
  }
  void displaced() override {
    MutexLock lock(mutex_);
    ++displaced_;
  }

  const JobTag job;
  Judge judge_of;

 private:
  static std::string text_of(const Stream& stream, const TakenBatch& taken) {
    const wire::FieldLayout& field = stream.phase()->run->plan().layout.fields()[0];
    std::string text;
    for (std::uint64_t row = 0; row < taken.order.rows.rows; ++row) {
      std::int64_t range[2];
      std::memcpy(range, taken.order.slot + field.offsets_offset + row * sizeof range[0],
                  sizeof range);
      text.append(reinterpret_cast<const char*>(taken.order.slot + field.offset + range[0]),
                  static_cast<std::size_t>(range[1] - range[0]));
      text += ' ';
    }
    return text;
  }

  const delivery::HolderId holder_;
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t told_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::optional<Status> failure_ SPDLD_GUARDED_BY(mutex_);
  int displaced_ SPDLD_GUARDED_BY(mutex_) = 0;
};
using ReaderPtr = std::shared_ptr<Reader>;

inline constexpr std::uint64_t kItems = 80;  // 20 steps of 4 in an epoch
inline constexpr std::uint64_t kRows = 4;
inline constexpr std::uint64_t kSteps = kItems / kRows;

inline std::string rows_of(std::uint64_t step) {
  std::string text;
  for (std::uint64_t row = 0; row < kRows; ++row)
    text += "item-" + std::to_string(step * kRows + row) + " ";
  return text;
}

// Of a stream for so many replicas; all but the first are awaited, if any is.
inline StreamOptions replicated(Span span, std::uint32_t replicas, AbsentReplica absent) {
  StreamOptions options{
      .span = std::move(span), .maker = 1, .replicas = replicas, .absent = absent};
  for (std::uint32_t replica = 1; replica < replicas && absent == AbsentReplica::kWait; ++replica)
    options.awaited.push_back({replica, 0});
  return options;
}

// Fixture: items that are delivered as bytes, in order, by two workers.
class StreamsFixture : public ::testing::Test {
 protected:
  void SetUp() override { use(FakeSource::numbered(kItems)); }
  void TearDown() override { executor_.stop(); }

  using FakeSource = spdld::testing::FakeSource;
  void use(std::vector<std::string> items) {
    auto plan = spdld::testing::compile("  - fetch\n", "batch: {size: 4, max_bytes: 4KiB}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    source_ = std::make_shared<FakeSource>(std::move(items));
  }
  std::shared_ptr<pipeline::Phase> phase(std::string content = "content", std::uint64_t seed = 1,
                                         std::uint64_t batch = kRows) {
    auto made = std::make_shared<pipeline::Phase>();
    made->items = source_->size();
    made->batch = batch;
    made->content = std::move(content);
    made->seed = seed;
    made->run = std::make_shared<engine::Run>(plan_, source_,
                                              source::Sampler(source_->size(), Shuffle{}, seed),
                                              seed, executor_.pool(), engine::RunLimits{}, clock_);
    return made;
  }
  // Shard 0 of one, from a step of an epoch that is read whole.
  Span span(const pipeline::PhasePtr& phase, job::StepAt from = {}) const {
    return Span(phase,
                {.epoch = from.epoch, .step = from.step, .position = from.step * phase->batch}, 0);
  }
  Span span(job::StepAt from = {}) { return span(phase(), from); }
  ReaderPtr reader(JobTag job, std::size_t allowed = 1000) {
    return std::make_shared<Reader>(++last_holder_, job, allowed);
  }
  // Until all that may be made has been.
  static void settle(const Stream& stream) {
    while (true) {
      const auto counts = stream.pool()->slots().counts();
      if (counts.free == 0 && counts.loaned == 0) return;
      std::this_thread::yield();
    }
  }
  // Every slot is free again, and stays so.
  static void expect_idle(const std::shared_ptr<SlotPool>& pool) {
    while (pool->slots().counts().loaned > 0) std::this_thread::yield();
    EXPECT_TRUE(pool->slots().idle());
    EXPECT_EQ(pool->slots().counts().bad_releases, 0U);
  }

  HandClock clock_;
  delivery::ArenaBudget budget_{std::uint64_t{1} << 24};
  delivery::ArenaPool arenas_{budget_, {.bytes = std::uint64_t{1} << 22}, clock_};
  std::shared_ptr<const engine::Plan> plan_;
  std::shared_ptr<FakeSource> source_;
  std::shared_ptr<ByteMeter> meter_ = std::make_shared<ByteMeter>();
  engine::Executor executor_{engine::ExecutorOptions{.threads = 2}};
  delivery::HolderId last_holder_ = 0;
};

}  // namespace spdld::stream::testing

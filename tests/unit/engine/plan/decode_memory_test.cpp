// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/decode_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory/no_memory.h"
#include "base/mutex.h"
#include "engine/executor.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/support/sizes.h"
#include "tests/unit/engine/batches.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

// What is done about images that take much memory, and about memory that is not there.
namespace spdld::engine {
namespace {

using test::kMiB;
using testing::FakeSource;
using ::testing::HasSubstr;

TEST(DecodeMemory, HasNoRoomBeyondItsCeiling) {
  DecodeMemory memory(100);
  EXPECT_TRUE(memory.has_room_for(100));
  memory.take(60);
  EXPECT_TRUE(memory.has_room_for(40));
  EXPECT_FALSE(memory.has_room_for(41));
  memory.give_back(60);
  EXPECT_TRUE(memory.has_room_for(100));
  EXPECT_EQ(memory.most_taken_bytes(), 60U);
}

TEST(DecodeMemory, LetsInWhatIsLargerThanItsCeilingAlone) {
  DecodeMemory memory(100);
  memory.take(1);
  EXPECT_FALSE(memory.has_room_for(1000));
  memory.give_back(1);
  EXPECT_TRUE(memory.has_room_for(1000));
  memory.take(1000);
  EXPECT_FALSE(memory.has_room_for(1));
}

// Takes one batch a step, in as many slots, and remembers the items and what failed.
class EagerConsumer final : public StreamPort {
 public:
  EagerConsumer(const Plan& plan, std::uint64_t steps) : layout_(plan.layout), steps_(steps) {
    for (std::uint64_t i = 0; i < steps; ++i) memory_.emplace_back(layout_.slot_bytes());
  }

  std::optional<BatchOrder> open() override {
    MutexLock lock(mutex_);
    if (next_ == steps_) return std::nullopt;
    BatchOrder order{.epoch = 0,
                     .step = next_,
                     .rows = {.first = next_ * kRows, .rows = kRows, .valid = kRows},
                     .next_position = (next_ + 1) * kRows,
                     .slot = memory_[next_].data(),
                     .ticket = 0};
    ++next_;
    return order;
  }
  void commit(const BatchOrder& order) override {
    MutexLock lock(mutex_);
    committed_.insert(order.step);
    changed_.notify_all();
  }
  void abandon(const BatchOrder& order) override {
    MutexLock lock(mutex_);
    abandoned_.insert(order.step);
    changed_.notify_all();
  }
  Status may_replace(const SampleFailure& failure) override {
    MutexLock lock(mutex_);
    replaced_.push_back(failure);
    return {};
  }
  void fail(const StreamFailure& failure) override {
    MutexLock lock(mutex_);
    if (failed_.status.ok()) failed_ = failure;
    next_ = steps_;
    changed_.notify_all();
  }

  void wait_for_batches(std::size_t count) {
    MutexLock lock(mutex_);
    while (committed_.size() < count) changed_.wait(mutex_);
  }
  void wait_for_abandoned(std::size_t count) {
    MutexLock lock(mutex_);
    while (abandoned_.size() < count) changed_.wait(mutex_);
  }
  StreamFailure wait_for_failure() {
    MutexLock lock(mutex_);
    while (failed_.status.ok()) changed_.wait(mutex_);
    return failed_;
  }
  std::size_t batches() {
    MutexLock lock(mutex_);
    return committed_.size();
  }
  std::vector<SampleFailure> replaced() {
    MutexLock lock(mutex_);
    return replaced_;
  }
  // Pixels, labels, indices and all.
  std::vector<std::vector<std::byte>> bytes() {
    MutexLock lock(mutex_);
    return memory_;
  }

 private:
  const BatchLayout& layout_;
  const std::uint64_t steps_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<std::byte>> memory_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t next_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::set<std::uint64_t> committed_ SPDLD_GUARDED_BY(mutex_);
  std::set<std::uint64_t> abandoned_ SPDLD_GUARDED_BY(mutex_);
  std::vector<SampleFailure> replaced_ SPDLD_GUARDED_BY(mutex_);
  StreamFailure failed_ SPDLD_GUARDED_BY(mutex_);
};

std::string picture(int width, int height, bool progressive) {
  const auto bytes = media::test::make_jpeg(
      {.width = width, .height = height, .quality = 30, .progressive = progressive});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Its coefficients take 24 MB: more than the allowance, once only in 40 MiB.
const std::string& large() {
  static const std::string kLarge = picture(2048, 2048, true);
  return kLarge;
}
const std::string& small() {
  static const std::string kSmall = picture(64, 64, true);
  return kSmall;
}

class DecodeMemoryTest : public ::testing::TestWithParam<unsigned> {
 protected:
  std::shared_ptr<engine::Run> run_of(std::vector<std::string> items,
                                      const std::string& policy = "") {
    return run_of(std::move(items), "  - resize: {size: [16, 16]}\n", policy, {GetParam()});
  }
  std::shared_ptr<engine::Run> run_of(std::vector<std::string> items, const std::string& stages,
                                      const std::string& policy, RunPool pool) {
    auto plan =
        testing::compile("  - fetch\n  - decode_image\n" + stages, "batch: {size: 4}\n" + policy);
    EXPECT_TRUE(plan) << plan.error().message();
    plans_.push_back(*plan);
    source_ = std::make_shared<FakeSource>(std::move(items));
    return std::make_shared<engine::Run>(*plan, source_,
                                         source::Sampler(source_->size(), Shuffle{}, 1), 1, pool,
                                         RunLimits{}, clock_);
  }
  ExecutorOptions options(std::uint64_t decode_memory_bytes) {
    return {.threads = GetParam(),
            .decode_memory_bytes = decode_memory_bytes,
            .memory_pause = std::chrono::milliseconds(1)};
  }
  std::shared_ptr<EagerConsumer> consumer(std::uint64_t steps) {
    return std::make_shared<EagerConsumer>(*plans_.back(), steps);
  }

  SystemClock clock_;
  std::vector<std::shared_ptr<const Plan>> plans_;
  std::shared_ptr<FakeSource> source_;
};

TEST_P(DecodeMemoryTest, DecodesLargeImagesWithinTheCeilingToTheSamePixels) {
  const std::vector<std::string> items{large(), small(), large(), large(),
                                       large(), large(), small(), large()};
  std::vector<std::vector<std::byte>> without;
  for (const std::uint64_t ceiling : {4096 * kMiB, 40 * kMiB}) {
    const auto run = run_of(items);
    const auto reader = consumer(2);
    Executor executor(options(ceiling));
    const StreamId stream = executor.open_stream(run, reader);
    reader->wait_for_batches(2);
    EXPECT_LE(executor.most_decode_memory(), ceiling);
    EXPECT_GT(executor.most_decode_memory(), 20 * kMiB);
    EXPECT_TRUE(reader->replaced().empty());
    if (without.empty()) without = reader->bytes();
    EXPECT_EQ(reader->bytes(), without);
    executor.close_stream(stream);
  }
}

TEST_P(DecodeMemoryTest, DecodesAnImageAloneThatTakesMoreThanTheCeiling) {
  const auto run = run_of({large(), large(), large(), large()});
  const auto reader = consumer(1);
  Executor executor(options(kMiB));
  executor.open_stream(run, reader);
  reader->wait_for_batches(1);
  EXPECT_TRUE(reader->replaced().empty());
  EXPECT_LT(executor.most_decode_memory(), 40 * kMiB);  // one at a time
}

TEST_P(DecodeMemoryTest, TakesNothingForSmallImages) {
  const auto run = run_of({small(), small(), small(), small()});
  const auto reader = consumer(1);
  Executor executor(options(kMiB));
  executor.open_stream(run, reader);
  reader->wait_for_batches(1);
  EXPECT_EQ(executor.most_decode_memory(), 0U);
}

TEST_P(DecodeMemoryTest, LargeImagesOfOneRunDoNotKeepAnotherRunFromItsOwn) {
  const auto greedy = run_of(std::vector<std::string>(12, large()));
  const auto greedy_reader = consumer(3);
  const auto other = run_of({small(), large(), small(), small()});
  const auto reader = consumer(1);
  Executor executor(options(30 * kMiB));
  executor.open_stream(greedy, greedy_reader);
  greedy_reader->wait_for_batches(1);
  executor.open_stream(other, reader);
  reader->wait_for_batches(1);
  greedy_reader->wait_for_batches(3);
}

TEST_P(DecodeMemoryTest, AClosedStreamLeavesTheLineForMemory) {
  for (int round = 0; round < 3; ++round) {
    const auto greedy = run_of(std::vector<std::string>(16, large()));
    const auto greedy_reader = consumer(4);
    const auto other = run_of({large(), large(), large(), large()});
    const auto reader = consumer(1);
    Executor executor(options(kMiB));
    const StreamId closed = executor.open_stream(greedy, greedy_reader);
    executor.open_stream(other, reader);
    executor.close_stream(closed);
    reader->wait_for_batches(1);
  }
}

TEST_P(DecodeMemoryTest, ARowOfMoreThanItMayTakeIsAnErrorOfItsItem) {
  const auto run = run_of({small(), large(), small(), small()}, "  - resize: {size: [16, 16]}\n",
                          "on_error: {decode: replace}\n", {GetParam(), 20 * kMiB});
  const auto reader = consumer(1);
  Executor executor(options(kMiB));
  executor.open_stream(run, reader);
  reader->wait_for_batches(1);
  const std::vector<SampleFailure> replaced = reader->replaced();
  ASSERT_EQ(replaced.size(), 1U);
  EXPECT_EQ(replaced[0].item, 1U);
  EXPECT_EQ(replaced[0].status.code(), Code::kResourceExhausted);
  EXPECT_THAT(replaced[0].status.message(), HasSubstr("'decode_image + resize' would take "));
  EXPECT_THAT(
      replaced[0].status.message(),
      HasSubstr("bytes of memory for it, and limits.row_memory is 20971520: lower the sizes"));
  EXPECT_EQ(executor.most_decode_memory(), 0U);
}

// Each picture becomes one of 3000 x 3000 pixels, then one of 2000 x 2000, and a small one.
TEST_P(DecodeMemoryTest, ARowTakesItsLargestPairOfNeighboursAndNoMore) {
  const std::string stages =
      "  - resize: {size: [3000, 3000]}\n  - resize: {size: [2000, 2000]}\n"
      "  - resize: {size: [16, 16]}\n";
  constexpr std::uint64_t kPair = 3 * (3000 * 3000 + 2000 * 2000);
  const std::vector<std::string> items(4, small());
  const auto within = run_of(items, stages, "", {GetParam(), kPair + 16 * kMiB});
  const auto reader = consumer(1);
  Executor executor(options(64 * kMiB));
  executor.open_stream(within, reader);
  reader->wait_for_batches(1);
  EXPECT_GE(executor.most_decode_memory(), kPair);
  const auto beyond = run_of(items, stages, "", {GetParam(), kPair});
  const auto refused = consumer(1);
  executor.open_stream(beyond, refused);
  EXPECT_THAT(refused->wait_for_failure().status.message(), HasSubstr("limits.row_memory is "));
}

// Has no memory for some items' bytes, so many times.
class PoorSource final : public source::Source {
 public:
  PoorSource(std::shared_ptr<FakeSource> source, std::map<std::uint64_t, int> refusals)
      : source_(std::move(source)), refusals_(std::move(refusals)) {}

  std::uint64_t size() const override { return source_->size(); }
  const std::string& listing_digest() const override { return source_->listing_digest(); }
  const std::vector<source::SourceField>& fields() const override { return source_->fields(); }
  const std::vector<std::string>& classes() const override { return source_->classes(); }
  std::string uri(std::uint64_t item) const override { return source_->uri(item); }
  Value value(std::uint64_t item, std::size_t value) const override {
    return source_->value(item, value);
  }
  Result<source::FetchState> fetch(std::uint64_t item,
                                   std::span<const source::PartRequest> requests,
                                   source::FetchedItem& out, source::FetchSink& sink,
                                   std::uint64_t token) override {
    {
      MutexLock lock(mutex_);
      if (const auto left = refusals_.find(item); left != refusals_.end() && left->second > 0) {
        if (--left->second % 2 == 0) throw std::bad_alloc();
        return tl::unexpected<Status>(no_memory("item", 123456));
      }
    }
    return source_->fetch(item, requests, out, sink, token);
  }

 private:
  const std::shared_ptr<FakeSource> source_;
  Mutex mutex_;
  std::map<std::uint64_t, int> refusals_ SPDLD_GUARDED_BY(mutex_);
};

class NoMemoryTest : public DecodeMemoryTest {
 protected:
  std::shared_ptr<engine::Run> poor_run(std::map<std::uint64_t, int> refusals) {
    run_of({small(), small(), small(), small()}, "on_error: {decode: replace}\n");
    return std::make_shared<engine::Run>(
        plans_.back(), std::make_shared<PoorSource>(source_, refusals),
        source::Sampler(4, Shuffle{}, 1), 1, RunPool{GetParam()}, RunLimits{}, clock_);
  }
};

TEST_P(NoMemoryTest, ARowIsTriedAgainAndIsTheSame) {
  const auto plenty = run_of({small(), small(), small(), small()});
  const auto expected = consumer(1);
  Executor executor(options(kMiB));
  executor.open_stream(plenty, expected);
  expected->wait_for_batches(1);
  for (const int item : {0, 3}) {
    const auto run = poor_run({{item, 1}});
    const auto reader = consumer(1);
    executor.open_stream(run, reader);
    reader->wait_for_batches(1);
    EXPECT_TRUE(reader->replaced().empty());
    EXPECT_EQ(reader->bytes(), expected->bytes());
  }
  EXPECT_EQ(executor.most_decode_memory(), kMiB);  // while it was alone
}

TEST_P(NoMemoryTest, ARowThatFailsTwiceEndsTheJobAndIsNeverReplaced) {
  const auto run = poor_run({{2, 2}});
  const auto reader = consumer(1);
  Executor executor(options(kMiB));
  executor.open_stream(run, reader);
  const StreamFailure failure = reader->wait_for_failure();
  const Status& failed = failure.status;
  EXPECT_EQ(failed.code(), Code::kResourceExhausted);
  EXPECT_THAT(failed.message(), HasSubstr("item 2 (fake/2): there is no memory for "));
  EXPECT_THAT(failed.message(), HasSubstr("tried again by itself; give the machine"));
  EXPECT_THAT(failed.message(), HasSubstr("lower decode_image.max_pixels"));
  ASSERT_TRUE(failure.sample);
  EXPECT_EQ(failure.sample->item, 2U);
  reader->wait_for_abandoned(1);
  EXPECT_TRUE(reader->replaced().empty());
}

INSTANTIATE_TEST_SUITE_P(Workers, DecodeMemoryTest, ::testing::Values(1, 4));
INSTANTIATE_TEST_SUITE_P(Workers, NoMemoryTest, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stream/stream.h"
#include "tests/unit/stream/hand_gpu.h"
#include "tests/unit/stream/reading.h"

// What tests of delivery to GPUs have in common: the test makes the batches, is the thread of each
// GPU, and reads. So all orders of these can be had, and none depends on the time.
namespace spdld::stream::testing {

// Of each stream's own arena, and of each GPU that it is read on.
inline constexpr std::uint32_t kHostSlots = 4;
inline constexpr std::uint32_t kDeviceSlots = 3;

inline std::uint64_t stamp_of(job::StepAt at, std::uint64_t word) {
  return ((at.epoch << 32 | at.step) + 1) * 0x9E3779B97F4A7C15U ^ word;
}
inline std::int64_t label_of(job::StepAt at, std::uint64_t row) {
  return static_cast<std::int64_t>((at.epoch * 1000 + at.step) * 10 + row);
}

// Where the fields of a batch are found, wherever it lies.
struct Found {
  std::vector<wire::FieldLayout> fields = {};  // of its own: a stream may end before
  const std::byte* host = nullptr;
  const std::byte* device = nullptr;  // null: it lies in main memory alone

  const std::byte* values(std::size_t field) const {
    const bool there = (fields[field].flags & wire::kFieldOnDevice) != 0;
    EXPECT_FALSE(there && device == nullptr);
    return (there ? device : host) + fields[field].offset;
  }
};

// Writes a batch of image and label that tells of which step it is.
inline void stamp(const engine::Plan& plan, const engine::BatchOrder& order) {
  const job::StepAt at{order.epoch, order.step};
  const wire::FieldLayout& image = plan.layout.fields()[0];
  std::vector<std::uint64_t> words(image.capacity_bytes / sizeof(std::uint64_t));
  for (std::uint64_t word = 0; word < words.size(); ++word) words[word] = stamp_of(at, word);
  std::memcpy(order.slot + image.offset, words.data(), image.capacity_bytes);
  for (std::uint64_t row = 0; row < order.rows.rows; ++row) {
    const std::int64_t label = label_of(at, row);
    std::memcpy(order.slot + plan.layout.fields()[1].offset + row * sizeof label, &label,
                sizeof label);
  }
}

inline bool is_stamped(const Found& found, job::StepAt at) {
  const std::byte* const image = found.values(0);
  // Of each line of the cache a word, and the last one.
  const std::uint64_t words = found.fields[0].capacity_bytes / sizeof(std::uint64_t);
  for (std::uint64_t word = 7; word < words; word += 8) {
    const std::uint64_t value = stamp_of(at, word);
    if (std::memcmp(image + word * sizeof value, &value, sizeof value) != 0) return false;
  }
  for (std::uint64_t row = 0; row < kRows; ++row) {
    const std::int64_t label = label_of(at, row);
    if (std::memcmp(found.values(1) + row * sizeof label, &label, sizeof label) != 0) return false;
  }
  return true;
}

// A consumer that reads when the test says so, in main memory or on a GPU.
class GpuReader final : public StreamReader {
 public:
  GpuReader(delivery::HolderId holder, JobTag job) : job(job), holder_(holder) {}

  struct Batch {
    std::uint64_t lease = 0;
    job::StepAt place = {};
    std::shared_ptr<SlotPool> pool;
    Found found;

    std::uint32_t slot() const { return delivery::SlotTable::slot_of(lease); }
    bool on_gpu() const { return pool->gpu() != nullptr; }
  };
  // The batch, which must be what it says.
  std::optional<Batch> poll(Stream& stream, Index at) {
    auto taken = stream.take(holder_, at);
    if (!taken) return std::nullopt;
    const job::StepAt place = stream.span().at(at).at();
    EXPECT_EQ((job::StepAt{taken->order.epoch, taken->order.step}), place);
    Batch batch{.lease = taken->lease, .place = place, .pool = taken->pool, .found = {}};
    batch.found.host = batch.pool->arena().slot(taken->slot).data();
    if (batch.on_gpu()) {
      const auto fields = stream.device_layout().fields();
      batch.found.fields.assign(fields.begin(), fields.end());
      batch.found.device =
          HandGpu::read(batch.pool->device_arena(), batch.pool->device_place(taken->slot)).data();
    } else {
      batch.found.fields = stream.phase()->run->plan().layout.fields();
    }
    EXPECT_TRUE(is_stamped(batch.found, place))
        << "other values than those of " << place_text(place);
    return batch;
  }
  // It has read the batch until now, so nobody may have written to it.
  void release(const Batch& batch) {
    EXPECT_TRUE(is_stamped(batch.found, batch.place)) << "overwritten while it was leased";
    if (batch.pool->release(batch.lease, holder_)) batch.pool->freed();
  }

  delivery::HolderId holder() const override { return holder_; }
  FailureJudge& judge() override { return judge_; }
  void ready() override { told_.fetch_add(1, std::memory_order_acq_rel); }
  void failed(const engine::StreamFailure& failure, const Stream&) override {
    MutexLock lock(mutex_);
    failure_ = failure.status;
  }
  void refused_memory(const Status& why, const Stream& stream) override {
    failed({.status = why}, stream);
  }
  void displaced() override {}

  std::uint64_t told() const { return told_.load(std::memory_order_acquire); }
  std::optional<Status> failure() {
    MutexLock lock(mutex_);
    return failure_;
  }

  const JobTag job;

 private:
  const delivery::HolderId holder_;
  Judge judge_;
  std::atomic<std::uint64_t> told_{0};  // so many times something may have been there; any thread
  Mutex mutex_;
  std::optional<Status> failure_ SPDLD_GUARDED_BY(mutex_);
};
using GpuReaderPtr = std::shared_ptr<GpuReader>;

// Slots of the pool on a GPU whose memory was taken beforehand.
inline std::shared_ptr<SlotPool> slots_of(SlotPool& pool, const HandGpuPtr& gpu,
                                          const delivery::DeviceLayout& layout,
                                          std::uint32_t count) {
  DeviceReserve reserve;
  auto slots = pool.on(gpu, layout, count, &reserve);
  if (!slots) {
    EXPECT_TRUE(reserve.lacks()) << slots.error().message();
    reserve.fill();
    slots = pool.on(gpu, layout, count, &reserve);
  }
  EXPECT_TRUE(slots) << slots.error().message();
  return *slots;
}

// Streams of images of 75 KiB a batch, which the test makes.
class GpuFixture : public StreamsFixture {
 protected:
  using StreamPtr = std::shared_ptr<Stream>;

  void SetUp() override {
    auto plan =
        spdld::testing::compile("  - fetch\n  - decode_image\n  - resize: {size: [80, 80]}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    ASSERT_EQ(plan_->layout.fields()[0].capacity_bytes, kRows * 3 * 80 * 80);
    source_ = std::make_shared<FakeSource>(FakeSource::numbered(kItems));
    executor_.stop();  // the test makes the batches
  }
  // Everything was given back.
  void TearDown() override {
    settle();
    EXPECT_EQ(meter_->used(), 0U);
    EXPECT_EQ(gpu_->bytes(), 0U);
    EXPECT_EQ(other_gpu_->bytes(), 0U);
  }
  void settle() {
    gpu_->settle();
    other_gpu_->settle();
  }

  StreamPtr make(StreamOptions options, std::uint32_t slots = kHostSlots) {
    const delivery::ArenaShape shape{.slot_bytes = plan_->layout.slot_bytes(), .slot_count = slots};
    auto pool = SlotPool::create(shape, 0, arenas_, meter_, executor_);
    EXPECT_TRUE(pool) << pool.error().message();
    return make(std::move(options), *pool);
  }
  StreamPtr make(StreamOptions options, std::shared_ptr<SlotPool> pool) {
    return std::make_shared<Stream>(std::move(options), std::move(pool), executor_, clock_);
  }
  StreamPtr make(std::uint32_t replicas = 1, AbsentReplica absent = AbsentReplica::kWait,
                 std::uint32_t slots = kHostSlots) {
    return make(testing::replicated(span(), replicas, absent), slots);
  }
  static std::shared_ptr<SlotPool> slots_on(const Stream& stream, const HandGpuPtr& gpu) {
    if (gpu == nullptr) return nullptr;
    return slots_of(*stream.pool(), gpu, stream.device_layout(), kDeviceSlots);
  }
  GpuReaderPtr reader(JobTag job = 1) { return std::make_shared<GpuReader>(++last_holder_, job); }
  static ReaderTerms terms(const Stream& stream, const GpuReaderPtr& reader, const HandGpuPtr& gpu,
                           Index from = 0, std::uint32_t replica = 0) {
    return {.holder = reader->holder(),
            .job = reader->job,
            .replica = replica,
            .next = from,
            .open_epochs = 100,
            .on_gpu = slots_on(stream, gpu)};
  }
  // A reader that has joined at a batch; null for `gpu`: it reads in main memory.
  GpuReaderPtr joined(Stream& stream, const HandGpuPtr& gpu, JobTag job = 1,
                      std::uint32_t replica = 0, Index from = 0) {
    auto made = reader(job);
    EXPECT_TRUE(stream.join(made, terms(stream, made, gpu, from, replica), from));
    return made;
  }
  // One that reads to `until`, from the first batch on.
  GpuReaderPtr joined_until(Index until, Stream& stream, const HandGpuPtr& gpu, JobTag job) {
    auto made = reader(job);
    ReaderTerms bounded = terms(stream, made, gpu);
    bounded.until = until;
    EXPECT_TRUE(stream.join(made, bounded, 0));
    return made;
  }
  static engine::StreamPort& port(Stream& stream) { return stream; }
  std::optional<engine::BatchOrder> begin(Stream& stream) const { return port(stream).open(); }
  void finish(Stream& stream, const engine::BatchOrder& order) const {
    stamp(*plan_, order);
    port(stream).commit(order);
  }
  // Makes so many batches, or as many as there are slots for; returns how many.
  std::uint64_t produce(Stream& stream, std::uint64_t count) const {
    for (std::uint64_t made = 0; made < count; ++made) {
      const auto order = begin(stream);
      if (!order) return made;
      finish(stream, *order);
    }
    return count;
  }
  static std::optional<GpuReader::Batch> poll(Stream& stream, const GpuReaderPtr& reader,
                                              Index at) {
    return reader->poll(stream, at);
  }
  // The batch, which must be there.
  static GpuReader::Batch take(Stream& stream, const GpuReaderPtr& reader, Index at) {
    auto batch = poll(stream, reader, at);
    EXPECT_TRUE(batch) << "batch " << at;
    return batch.value_or(GpuReader::Batch());
  }
  static void pass(Stream& stream, const GpuReaderPtr& reader, Index at) {
    auto batch = poll(stream, reader, at);
    ASSERT_TRUE(batch) << "batch " << at;
    reader->release(*batch);
  }
  // How many slots of the stream's own are neither free nor being filled.
  static std::uint32_t full_slots(const Stream& stream) {
    const auto counts = stream.pool()->slots().counts();
    return counts.ready + counts.leased;
  }
  static std::uint32_t free_slots(const SlotPool& pool) { return pool.slots().counts().free; }

  const HandGpuPtr gpu_ = std::make_shared<HandGpu>("GPU-1");
  const HandGpuPtr other_gpu_ = std::make_shared<HandGpu>("GPU-2");
};

}  // namespace spdld::stream::testing

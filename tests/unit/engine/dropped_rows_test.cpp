// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/executor.h"
#include "engine/plan/image_steps.h"
#include "engine/run.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/no_sample.h"
#include "tests/unit/engine/quiet_port.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

// What is done about rows that nobody wants any more while they are made.
namespace spdld::engine {
namespace {

using testing::FakeSource;

constexpr int kDropsAt = 10;

// A picture whose row kDropsAt has its sample dropped.
class DroppingPicture final : public RegionReader {
 public:
  explicit DroppingPicture(std::atomic<bool>& dropped) : dropped_(dropped) {}

  Status read(const Rect& region, RowSink& rows) override {
    const std::vector<std::uint8_t> row(static_cast<std::size_t>(region.width) * 3, 200);
    for (int y = 0; y < region.height; ++y) {
      if (y == kDropsAt) dropped_ = true;
      rows.row(y, row.data());
    }
    return {};
  }

 private:
  std::atomic<bool>& dropped_;
};

TEST(DroppedRows, AreGivenToNoFurtherStep) {
  const auto plan = testing::compile(
      "  - fetch\n  - decode_image\n  - resize: {size: [300, 300]}\n  - resize: {size: [8, 8]}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const ImageTask& task = *(*plan)->image;
  ImageSteps steps(task.geometry, task.stored);
  ASSERT_TRUE(steps.plan({40, 30}, 1));
  std::vector<std::byte> row((*plan)->layout.row_bytes(0), std::byte{7});
  const auto before = row;
  std::atomic<bool> dropped = false;
  NoSample sample;
  sample.dropped = &dropped;
  DroppingPicture picture(dropped);
  const transform::ImageTarget target{
      .data = row.data(), .format = task.format, .layout = task.layout};
  EXPECT_EQ(steps.run(picture, sample, target).code(), Code::kCancelled);
  EXPECT_EQ(row, before);
  // The next sample is made with the same steps.
  sample.dropped = nullptr;
  ASSERT_TRUE(steps.run(picture, sample, target).ok());
  EXPECT_TRUE(
      std::all_of(row.begin(), row.end(), [](std::byte value) { return value == std::byte{200}; }));
}

std::string small_jpeg() {
  const auto bytes = media::test::make_jpeg({.width = 40, .height = 30});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Asks for one batch of one row, which nothing takes the place of.
class OneRow final : public QuietPort {
 public:
  explicit OneRow(const Plan& plan) : slot_(plan.layout.slot_bytes()) {}

  std::optional<BatchOrder> open() override {
    if (opened_.exchange(true)) return std::nullopt;
    return BatchOrder{.rows = {.first = 0, .rows = 1, .valid = 1}, .slot = slot_.data()};
  }
  void commit(const BatchOrder&) override { ADD_FAILURE() << "it was given up"; }
  void abandon(const BatchOrder&) override { ended_.count_down(); }
  Status may_replace(const SampleFailure& failure) override {
    ADD_FAILURE() << failure.status.message();
    return {};
  }
  void fail(const StreamFailure& failure) override { ADD_FAILURE() << failure.status.message(); }

  void wait() { ended_.wait(); }

 private:
  std::vector<std::byte> slot_;
  std::atomic<bool> opened_ = false;
  std::latch ended_{1};
};

class DroppedBatch : public ::testing::TestWithParam<bool> {};

TEST_P(DroppedBatch, EndsTheRowThatAWorkerHas) {
  const auto plan = testing::compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n",
                                     "batch: {size: 1}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  const auto source = std::make_shared<FakeSource>(std::vector<std::string>{small_jpeg()});
  std::latch asked(1), answered(1);
  source->on_given = [&](std::uint64_t, source::FetchedItem&) {
    asked.count_down();
    answered.wait();
  };
  const SystemClock clock;
  const auto run = std::make_shared<engine::Run>(*plan, source, source::Sampler(1, Shuffle{}, 1), 1,
                                                 RunPool{1}, RunLimits{}, clock);
  const auto port = std::make_shared<OneRow>(**plan);
  Executor executor({.threads = 1});
  const StreamId stream = executor.open_stream(run, port);
  asked.wait();
  if (GetParam()) {
    executor.cancel(stream, 0, 0);
    answered.count_down();
  } else {
    executor.close_stream(stream);
    answered.count_down();
  }
  port->wait();
  executor.stop();
  const StageSnapshot stage = run->process_stats().snapshot();
  EXPECT_EQ(stage.tasks, 0U);
  EXPECT_EQ(stage.failures, 0U);
  EXPECT_EQ(stage.in_flight, 0U);
}

INSTANTIATE_TEST_SUITE_P(By, DroppedBatch, ::testing::Bool(),
                         [](const auto& by) { return by.param ? "Cancel" : "Close"; });

}  // namespace
}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/image_steps.h"
#include "engine/run.h"
#include "source/files_source.h"
#include "tests/support/allocations.h"
#include "tests/support/pipelines.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/engine/no_calls.h"
#include "tests/unit/engine/no_sample.h"
#include "tests/unit/engine/quiet_port.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/source/item/fake_sink.h"

namespace spdld::engine {
namespace {

constexpr std::uint64_t kImages = 12;

// Gives pixels of its own, and takes no memory.
class Plane final : public RegionReader {
 public:
  Status read(const Rect& region, RowSink& rows) override {
    for (int y = 0; y < region.height; ++y) rows.row(y, row_.data());
    return {};
  }

 private:
  std::vector<std::uint8_t> row_ = std::vector<std::uint8_t>(8000 * 4 * 2, 100);
};

TEST(ImageSteps, TakeNoMoreMemoryThanTheyPlan) {
  for (const std::string stages :
       {"  - resize: {size: [600, 900]}\n  - resize: {size: [20, 30]}\n",
        "  - resize: {size: [20, 900], interpolation: bicubic}\n  - resize: {size: [750, 30]}\n"
        "  - random_crop: {size: [780, 300], pad_if_needed: true}\n"
        "  - resize: {size: [450, 480], antialias: false}\n  - resize: {size: 8}\n"
        "  - center_crop: {size: 8}\n",
        "  - center_crop: {size: [1200, 50]}\n  - resize: {size: [70, 900]}\n"
        "  - random_horizontal_flip\n  - resize: {size: [60, 20], interpolation: nearest}\n",
        "  - resize: {size: [30, 40]}\n"}) {
    for (const std::string mode : {"rgb", "rgba", "gray16"}) {
      SCOPED_TRACE(mode + "\n" + stages);
      const auto plan =
          testing::compile("  - fetch\n  - decode_image: {mode: " + mode + "}\n" + stages);
      ASSERT_TRUE(plan) << plan.error().message();
      const ImageTask& task = *(*plan)->image;
      std::vector<std::byte> row((*plan)->layout.row_bytes(0));
      Plane plane;
      for (const Size size : {Size{48, 40}, Size{2100, 30}, Size{900, 600}}) {
        const testing::HeldBytes held;
        ImageSteps steps(task.geometry, task.stored);
        const auto planned = steps.plan(size, 5);
        ASSERT_TRUE(planned) << planned.error().message();
        ASSERT_TRUE(steps
                        .run(plane, NoSample(),
                             {.data = row.data(), .format = task.format, .layout = task.layout})
                        .ok());
        constexpr std::uint64_t kSmall = 64 << 10;
        EXPECT_LE(static_cast<std::uint64_t>(held.most()), *planned + kSmall)
            << size.width << "x" << size.height;
      }
    }
  }
}

class RowAllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint64_t i = 0; i < kImages; ++i) {
      const auto bytes =
          media::test::make_jpeg({.width = 200 + static_cast<int>(i) * 20, .height = 300});
      dir_.write("class" + std::to_string(i % 3) + "/" + std::to_string(i) + ".jpg",
                 std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
  }

  // Makes all rows of an epoch by one worker; how often it allocated, and whether any row had to
  // wait for a read.
  struct Epoch {
    int allocations = 0;
    bool waited = false;
  };
  Epoch make(engine::Run& run, std::uint64_t number) {
    Epoch epoch;
    const BatchOrder order{.epoch = number,
                           .step = 0,
                           .rows = {.first = 0, .rows = kImages, .valid = kImages},
                           .next_position = kImages,
                           .slot = slot_.data(),
                           .ticket = 0};
    for (std::uint64_t index = 0; index < kImages; ++index) {
      row_.bytes.restart();
      row_.order = &order;
      row_.port = &port_;
      row_.index = index;
      StreamFailure failure;
      source::FakeSink sink;
      NoCalls no_calls;
      const int before = testing::allocations();
      RowState state = run.process(row_, 0, 0, {.fetch = sink, .call = no_calls}, 1, failure);
      epoch.allocations += testing::allocations() - before;
      if (state == RowState::kPending) {
        epoch.waited = true;
        run.fetched(row_, sink.wait(1));
        state = run.process(row_, 0, 0, {.fetch = sink, .call = no_calls}, 1, failure);
      }
      EXPECT_EQ(state, RowState::kDone) << failure.status.message();
    }
    return epoch;
  }

  test::ScratchDir dir_;
  source::IoPool io_{{.threads = 1}};
  QuietPort port_;
  Row row_;
  std::vector<std::byte> slot_;
};

TEST_F(RowAllocationTest, MakesImagesOfFilesThatAreCachedWithoutAllocating) {
  auto source = source::open_files(
      FilesSpec{.root = dir_.path(), .pattern = "**/*.jpg", .label = FilesSpec::Label::kParentDir},
      source::SourceOptions(io_));
  ASSERT_TRUE(source) << source.error().message();
  const auto plan = testing::compile(
      "  - fetch\n  - decode_image\n  - random_resized_crop: {size: 64}\n"
      "  - random_horizontal_flip\n"
      "  - normalize: {mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4]}\n",
      "batch: {size: 12}\n", (*source)->fields());
  ASSERT_TRUE(plan) << plan.error().message();
  slot_.resize((*plan)->layout.slot_bytes());
  const SystemClock clock;
  engine::Run run(*plan, std::move(*source), source::Sampler(kImages, (*plan)->spec.shuffle, 3), 3,
                  RunPool{}, RunLimits{}, clock);
  // Scratch grows to what the largest crops take. Files that the kernel has forgotten are read by
  // the I/O pool, which allocates.
  Epoch epoch;
  for (std::uint64_t number = 0; number < 200; ++number) {
    epoch = make(run, number);
    if (number > 20 && !epoch.waited && epoch.allocations == 0) break;
  }
  EXPECT_FALSE(epoch.waited);
  EXPECT_EQ(epoch.allocations, 0);
}

}  // namespace
}  // namespace spdld::engine

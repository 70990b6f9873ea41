// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/run.h"
#include "source/files_source.h"
#include "tests/support/allocations.h"
#include "tests/support/pipelines.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/engine/quiet_port.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/source/item/fake_sink.h"

namespace spdld::engine {
namespace {

constexpr std::uint64_t kImages = 12;

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
      const int before = testing::allocations();
      RowState state = run.process(row_, 0, 0, sink, 1, failure);
      epoch.allocations += testing::allocations() - before;
      if (state == RowState::kPending) {
        epoch.waited = true;
        run.fetched(row_, sink.wait(1));
        state = run.process(row_, 0, 0, sink, 1, failure);
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
                  1, RunLimits{}, clock);
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

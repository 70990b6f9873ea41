// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <gtest/gtest.h>

namespace spdld::control {
namespace {

TEST(Fill, WritesAPlanWithWhatItNeeds) {
  using Task = engine::PlanFacts::Task;
  engine::PlanFacts facts;
  facts.pipeline = "p";
  facts.items = 100;
  facts.shuffle = {.kind = Shuffle::Kind::kBlock, .block = 64, .interleave = 8};
  facts.tasks = {{.stages = "fetch", .pool = Task::Pool::kIo, .concurrency = 16},
                 {.stages = "decode_image + resize", .pool = Task::Pool::kCpu, .concurrency = 2}};
  facts.image = {.layout = Layout::kNHWC, .normalized = true, .resamples = 2};
  facts.batch_rows = 8;
  facts.slot_bytes = 4096;
  facts.tensors = {{"image", FieldKind::kDense, DType::kFloat32, {3, 8, 8}}};
  facts.max_bytes = 1 << 20;
  facts.steps_per_epoch = 12;
  facts.credits = 4;
  facts.slots = 6;
  facts.arena_kind = "memfd";
  facts.arena_bytes = facts.needed_bytes = 30'000;
  facts.used_bytes = 500;
  facts.budget_bytes = 20'500;
  facts.missing_bytes = 10'000;
  facts.warnings = {"stage normalize: means of the 0..255 scale"};
  v1::Plan message;
  fill(&message, facts);
  EXPECT_EQ(message.order().shuffle(), "block");
  EXPECT_EQ(message.order().interleave(), 8u);
  EXPECT_FALSE(message.order().has_repeat());
  ASSERT_EQ(message.tasks_size(), 2);
  EXPECT_EQ(message.tasks(0).pool(), "io");
  EXPECT_EQ(message.tasks(1).stages(), "decode_image + resize");
  EXPECT_EQ(message.tasks(1).concurrency(), 2u);
  EXPECT_EQ(message.image().layout(), "NHWC");
  EXPECT_EQ(message.image().resamples(), 2u);
  EXPECT_EQ(message.batch().slot_bytes(), 4096u);
  EXPECT_EQ(message.batch().tensors(0).shape(0), 3);
  EXPECT_FALSE(message.batch().has_max_bytes()) << "no tensor holds strings";
  EXPECT_EQ(message.steps_per_epoch(), 12u);
  EXPECT_FALSE(message.arenas().fits());
  EXPECT_EQ(message.arenas().missing_bytes(), 10'000u);
  EXPECT_FALSE(message.has_cache());
  ASSERT_EQ(message.warnings_size(), 1);
  EXPECT_EQ(message.warnings(0), facts.warnings.front());

  facts.shuffle.kind = Shuffle::Kind::kNone;
  facts.shuffle.repeat = {.rows = 4};
  facts.image.reset();
  facts.tensors = {{"text", FieldKind::kBytes, DType::kUInt8, {}}};
  facts.missing_bytes = 0;
  facts.cache = {.form = "decoded", .where = "ram", .used = false, .why_not = "raise cache.size"};
  v1::Plan other;
  fill(&other, facts);
  EXPECT_EQ(other.order().shuffle(), "none");
  EXPECT_FALSE(other.order().has_block());
  EXPECT_EQ(other.order().repeat(), 4u);
  EXPECT_TRUE(other.order().adjacent());
  EXPECT_FALSE(other.has_image());
  EXPECT_EQ(other.batch().max_bytes(), 1u << 20);
  EXPECT_TRUE(other.arenas().fits());
  EXPECT_FALSE(other.cache().used());
  EXPECT_FALSE(other.cache().has_payback_epochs()) << "it never comes back";
}

}  // namespace
}  // namespace spdld::control

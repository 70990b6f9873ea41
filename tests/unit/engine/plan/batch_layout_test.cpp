// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/batch_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace spdld::engine {
namespace {

using ::testing::HasSubstr;

const TensorSpec kImage{.name = "image", .dtype = DType::kFloat32, .shape = {3, 5, 7}};
const TensorSpec kLabel{.name = "label", .dtype = DType::kInt64};
const TensorSpec kBytes{.name = "image", .kind = FieldKind::kBytes};

TensorSpec bounded(TensorSpec tensor, std::uint64_t max_bytes) {
  tensor.max_bytes = max_bytes;
  return tensor;
}

TEST(BatchLayout, PutsEveryFieldOnItsOwnAlignedBytes) {
  const auto layout = BatchLayout::make({kImage, kLabel}, 6);
  ASSERT_TRUE(layout) << layout.error().message();
  std::uint64_t end = 0;
  for (const wire::FieldLayout& field : layout->fields()) {
    EXPECT_EQ(field.offset % wire::kFieldAlignment, 0U) << field.name;
    EXPECT_GE(field.offset, end) << field.name;
    end = field.offset + field.capacity_bytes;
  }
  EXPECT_GE(layout->slot_bytes(), end);
  EXPECT_EQ(layout->row_bytes(0), 3U * 5 * 7 * 4);
}

TEST(BatchLayout, TellsIndexAndValidityOfEachRow) {
  const auto layout = BatchLayout::make({kLabel}, 3);
  ASSERT_TRUE(layout);
  std::vector<std::byte> slot(layout->slot_bytes());
  layout->set_index(slot.data(), 2, 77);
  layout->set_valid(slot.data(), 1, true);
  const wire::FieldLayout& index = layout->fields()[1];
  const wire::FieldLayout& valid = layout->fields()[2];
  EXPECT_STREQ(index.name, wire::kIndexField);
  EXPECT_STREQ(valid.name, wire::kValidField);
  std::int64_t value = 0;
  std::memcpy(&value, slot.data() + index.offset + 2 * sizeof value, sizeof value);
  EXPECT_EQ(value, 77);
  EXPECT_EQ(slot[valid.offset + 1], std::byte{1});
  EXPECT_EQ(slot[valid.offset + 2], std::byte{0});
}

TEST(BatchLayout, KeepsRoomForOffsetsOfVariableRows) {
  const auto layout = BatchLayout::make({bounded(kBytes, 1000)}, 4);
  ASSERT_TRUE(layout);
  const wire::FieldLayout& field = layout->fields()[0];
  EXPECT_EQ(field.capacity_bytes, 1000U);
  EXPECT_GE(field.offset, field.offsets_offset + 5 * sizeof(std::int64_t));
}

TEST(BatchLayout, KeepsRoomForOffsetsAndShapesOfRaggedRows) {
  const TensorSpec boxes{.name = "boxes",
                         .kind = FieldKind::kRagged,
                         .dtype = DType::kFloat32,
                         .shape = {-1, 4},
                         .max_bytes = 640};
  const auto layout = BatchLayout::make({boxes}, 4);
  ASSERT_TRUE(layout);
  const wire::FieldLayout& field = layout->fields()[0];
  EXPECT_GE(field.shapes_offset, field.offsets_offset + 5 * sizeof(std::int64_t));
  EXPECT_GE(field.offset, field.shapes_offset + 4 * 2 * sizeof(std::int64_t));
  EXPECT_EQ(field.capacity_bytes, 640U);
  EXPECT_EQ(field.ndim, 2U);
}

TEST(BatchLayout, SaysWhatIsTextAndWhatIsPadded) {
  const TensorSpec text{.name = "t", .kind = FieldKind::kBytes, .text = true, .max_bytes = 10};
  const TensorSpec padded{
      .name = "p", .kind = FieldKind::kRagged, .shape = {-1}, .padded = true, .max_bytes = 10};
  const auto layout = BatchLayout::make({text, padded}, 4);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->fields()[0].flags, wire::kFieldText);
  EXPECT_EQ(layout->fields()[1].flags, wire::kFieldPadded);
}

TEST(BatchLayout, RefusesMoreFieldsThanAFrameCanTell) {
  std::vector<TensorSpec> many;
  for (int i = 0; i < 300; ++i) many.push_back({.name = "f" + std::to_string(i)});
  const auto layout = BatchLayout::make(many, 4);
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message(), HasSubstr("a sample has 300 fields"));
}

TEST(BatchLayout, RefusesWhatNoMachineHolds) {
  const TensorSpec huge{.name = "image", .shape = {1 << 20, 1 << 20, 1 << 20}};
  const auto row = BatchLayout::make({huge}, 1);
  ASSERT_FALSE(row);
  EXPECT_THAT(row.error().message(), HasSubstr("one row is larger than"));
  const TensorSpec large{.name = "image", .shape = {1 << 20, 1 << 10}};
  const auto rows = BatchLayout::make({large}, 65536);
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message(), HasSubstr("lower batch.size"));
}

TEST(BatchLayout, RefusesNamesAndRanksThatTheContractCannotHold) {
  EXPECT_FALSE(BatchLayout::make({{.name = std::string(48, 'x')}}, 1));
  EXPECT_FALSE(BatchLayout::make({{.name = "x", .shape = std::vector<std::int64_t>(9, 1)}}, 1));
}

}  // namespace
}  // namespace spdld::engine

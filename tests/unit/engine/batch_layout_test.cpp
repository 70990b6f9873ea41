// SPDX-License-Identifier: Apache-2.0
#include "engine/batch_layout.h"

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

TEST(BatchLayout, PutsEveryFieldOnItsOwnAlignedBytes) {
  const auto layout = BatchLayout::make({kImage, kLabel}, 6, 0);
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
  const auto layout = BatchLayout::make({kLabel}, 3, 0);
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
  const auto layout = BatchLayout::make({kBytes}, 4, 1000);
  ASSERT_TRUE(layout);
  const wire::FieldLayout& field = layout->fields()[0];
  EXPECT_EQ(field.capacity_bytes, 1000U);
  EXPECT_GE(field.offset, field.offsets_offset + 5 * sizeof(std::int64_t));
}

TEST(BatchLayout, RefusesVariableRowsWithoutABound) {
  const auto layout = BatchLayout::make({kBytes}, 4, 0);
  ASSERT_FALSE(layout);
  EXPECT_THAT(layout.error().message(), HasSubstr("set batch.max_bytes"));
}

TEST(BatchLayout, RefusesWhatNoMachineHolds) {
  const TensorSpec huge{.name = "image", .shape = {1 << 20, 1 << 20, 1 << 20}};
  const auto row = BatchLayout::make({huge}, 1, 0);
  ASSERT_FALSE(row);
  EXPECT_THAT(row.error().message(), HasSubstr("one row is larger than"));
  const TensorSpec large{.name = "image", .shape = {1 << 20, 1 << 10}};
  const auto rows = BatchLayout::make({large}, 65536, 0);
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message(), HasSubstr("lower batch.size"));
}

TEST(BatchLayout, RefusesNamesAndRanksThatTheContractCannotHold) {
  EXPECT_FALSE(BatchLayout::make({{.name = std::string(48, 'x')}}, 1, 0));
  EXPECT_FALSE(BatchLayout::make({{.name = "x", .shape = std::vector<std::int64_t>(9, 1)}}, 1, 0));
}

}  // namespace
}  // namespace spdld::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/pipelines.h"

namespace spdld::engine {
namespace {

using ::testing::HasSubstr;

// Batches of arrays that differ in size, packed by hand.
class PackingTest : public ::testing::Test {
 protected:
  // A field 'image' of arrays of this shape, uint8, collated so.
  void open(const std::string& shape, const std::string& collate, const std::string& rows) {
    auto plan = testing::compile(
        "  - fetch\n  - decode_npy: {field: image, dtype: uint8, shape: " + shape + "}\n",
        "batch:\n  size: " + rows + "\n  collate: {image: " + collate + "}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
    packing_.emplace(plan_, plan_->layout.rows());
    slot_.resize(plan_->layout.slot_bytes());
  }
  void make(std::uint64_t index, const std::vector<std::int64_t>& shape, std::size_t bytes) {
    PackedRow& row = packing_->row(0, index);
    std::byte* const data = row.bytes.resize(bytes);
    std::fill_n(data, bytes, std::byte{7});
    row.view = {data, bytes};
    std::copy(shape.begin(), shape.end(), row.shape.begin());
  }

  std::shared_ptr<const Plan> plan_;
  std::optional<Packing> packing_;
  std::vector<std::byte> slot_;
};

TEST_F(PackingTest, RefusesRowsThatWouldBePaddedBeyondAllNumbers) {
  open("[-1, -1, -1, -1]", "{pad: 0, max_bytes: 64KiB}", "4");
  constexpr std::int64_t kLong = 65536;
  for (std::uint64_t row = 0; row < 4; ++row) {
    std::vector<std::int64_t> shape(4, 1);
    shape[row] = kLong;  // together 2^64
    make(row, shape, kLong);
    packing_->made(row);
  }
  const Status status = packing_->pack(slot_.data(), 4);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("take more bytes than there are"));
  EXPECT_THAT(status.message(), HasSubstr("set batch.max_bytes"));
}

TEST_F(PackingTest, RefusesAHugeExtentBesideAnEmptyOne) {
  open("[-1, -1]", "{pad: 0, multiple_of: 8, max_bytes: 4KiB}", "2");
  make(0, {4, 3}, 12);
  make(1, {0, std::int64_t{1} << 48}, 0);
  packing_->made(0);
  packing_->made(1);
  EXPECT_EQ(packing_->pack(slot_.data(), 2).code(), Code::kResourceExhausted);
}

TEST_F(PackingTest, CountsARowOnceHoweverOftenItWasBegun) {
  open("[-1]", "{kind: ragged, max_bytes: 100}", "2");
  for (int again = 0; again < 5; ++again) make(0, {100}, 100);
  packing_->made(0);
  make(1, {60}, 60);
  packing_->made(1);
  const Status status = packing_->pack(slot_.data(), 2);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(PackingTest, PadsToTheRoomThatBatchMaxBytesGives) {
  auto plan = testing::compile(
      "  - fetch\n  - decode_npy: {field: image, dtype: uint8, shape: [-1, -1]}\n",
      "batch:\n  size: 2\n  max_bytes: 64KiB\n  collate: {image: {pad: 0, max_bytes: 128}}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  plan_ = *plan;
  packing_.emplace(plan_, 2);
  slot_.resize(plan_->layout.slot_bytes());
  make(0, {1, 100}, 100);
  make(1, {100, 1}, 100);
  packing_->made(0);
  packing_->made(1);
  const Status status = packing_->pack(slot_.data(), 2);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::byte* const rows = slot_.data() + plan_->layout.fields()[0].offset;
  EXPECT_EQ(rows[99], std::byte{7});
  EXPECT_EQ(rows[100], std::byte{0});
  EXPECT_EQ(rows[10000 + 100], std::byte{7});
  EXPECT_EQ(rows[10000 + 1], std::byte{0});
}

// Two fields of bytes that nothing decodes: their rows are views of what was fetched.
TEST(Packing, FailsABatchOneFieldOfWhichHasNoRoomWithoutALookAtTheOthers) {
  const auto plan = testing::compile("  - fetch\n", "batch: {size: 1, max_bytes: 64}\n",
                                     {{.name = "a"}, {.name = "b", .index = 1}});
  ASSERT_TRUE(plan) << plan.error().message();
  Packing packing(*plan, 1);
  ByteBuffer fetched;
  const std::span<const std::byte> bytes(fetched.resize(1000), 1000);
  packing.row(0, 0).view = bytes.first(10);
  packing.row(1, 0).view = bytes.subspan(10);
  packing.made(0, fetched);
  std::vector<std::byte> slot((*plan)->layout.slot_bytes());
  const Status status = packing.pack(slot.data(), 1);
  EXPECT_THAT(status.message(),
              HasSubstr("the rows of 'b' take 990 bytes, and batch.max_bytes is"));
}

}  // namespace
}  // namespace spdld::engine

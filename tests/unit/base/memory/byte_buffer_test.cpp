// SPDX-License-Identifier: Apache-2.0
#include "base/memory/byte_buffer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace spdld {
namespace {

TEST(ByteBuffer, BeginsEmptyAndOwnsNothing) {
  const ByteBuffer buffer;
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.capacity(), 0u);
  EXPECT_TRUE(buffer.bytes().empty());
}

TEST(ByteBuffer, AllocatesNothingForWhatFitsAlready) {
  ByteBuffer buffer;
  const std::byte* first = buffer.resize(1000);
  const std::size_t capacity = buffer.capacity();
  EXPECT_GE(capacity, 1000u);
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, capacity, std::size_t{0}}) {
    EXPECT_EQ(buffer.resize(size), first);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.capacity(), capacity);
  }
}

TEST(ByteBuffer, ShrinksOnlyWhenToldToAndOnlyWhenItIsLarge) {
  ByteBuffer buffer;
  buffer.resize(1000);
  const std::size_t capacity = buffer.capacity();
  buffer.shrink(capacity);
  EXPECT_EQ(buffer.capacity(), capacity);
  EXPECT_EQ(buffer.size(), 0u);
  buffer.shrink(capacity - 1);
  EXPECT_EQ(buffer.capacity(), 0u);
  std::memcpy(buffer.resize(3), "new", 3);
  EXPECT_EQ(std::memcmp(buffer.data(), "new", 3), 0);
}

TEST(ByteBuffer, KeepsItsContentWhileItFits) {
  ByteBuffer buffer;
  std::memcpy(buffer.resize(11), "hello world", 11);
  buffer.resize(5);
  buffer.resize(11);
  EXPECT_EQ(std::memcmp(buffer.data(), "hello world", 11), 0);
}

TEST(ByteBuffer, GrowsByMoreThanAskedSoThatGrowthEnds) {
  ByteBuffer buffer;
  int allocations = 0;
  std::size_t capacity = 0;
  for (std::size_t size = 0; size < 100000; ++size) {
    buffer.resize(size);
    if (buffer.capacity() != capacity) ++allocations;
    capacity = buffer.capacity();
  }
  EXPECT_LT(allocations, 40);
}

}  // namespace
}  // namespace spdld

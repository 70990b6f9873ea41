// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <vector>

namespace spdld {
namespace {

// What users' batches hang on: never change these numbers, give a new generator a new name.
TEST(Rng, YieldsThePinnedNumbers) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix64(1), 0x910a2dec89025cc1u);
  EXPECT_EQ(mix64(1, 2), 0xbcd9dbb49673066bu);
  EXPECT_EQ(name_key("random_resized_crop"), 0x008a43216c07c194u);
  EXPECT_EQ(name_key(""), 0xcbf29ce484222325u);
  KeyedRng rng(42);
  EXPECT_EQ(rng.next(), 0xf34fe9248c9342e5u);
  EXPECT_EQ(rng.next(), 0x725395388690ae46u);
  EXPECT_EQ(KeyedRng(42).uniform(), 0x1.e69fd24919268p-1);
  EXPECT_EQ(KeyedRng(42).below(1000), 950u);
}

TEST(Rng, IsTheSameForTheSameKeyAndAnotherForEveryOther) {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t key = 0; key < 10000; ++key) {
    EXPECT_EQ(KeyedRng(key).next(), KeyedRng(key).next());
    EXPECT_TRUE(firsts.insert(KeyedRng(key).next()).second) << key;
  }
}

TEST(Rng, FlipsHalfOfTheBitsForEachBitOfInput) {
  for (int bit = 0; bit < 64; ++bit) {
    int flipped = 0;
    for (std::uint64_t x = 0; x < 256; ++x) {
      flipped += std::popcount(mix64(x) ^ mix64(x ^ (std::uint64_t{1} << bit)));
    }
    EXPECT_NEAR(flipped / 256.0, 32.0, 2.0) << bit;
  }
}

TEST(Rng, TellsTheOrderOfTwoKeysApart) { EXPECT_NE(mix64(1, 2), mix64(2, 1)); }

TEST(Rng, StaysWithinItsBounds) {
  KeyedRng rng(3);
  for (int i = 0; i < 100000; ++i) {
    const double real = rng.uniform();
    ASSERT_GE(real, 0.0);
    ASSERT_LT(real, 1.0);
    const double shifted = rng.uniform(-2, 3);
    ASSERT_GE(shifted, -2.0);
    ASSERT_LT(shifted, 3.0);
    ASSERT_LT(rng.below(7), 7u);
  }
  EXPECT_EQ(rng.below(1), 0u);
}

TEST(Rng, DrawsEachValueEquallyOften) {
  constexpr int kDraws = 70000;
  std::vector<int> counts(7);
  KeyedRng rng(11);
  for (int i = 0; i < kDraws; ++i) ++counts[rng.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 7, 500);
}

TEST(Rng, IsKnownAtCompileTime) {
  static_assert(mix64(0) == 0xe220a8397b1dcdafu);
  static_assert(name_key("a") != name_key("b"));
  static_assert(KeyedRng(1).below(10) < 10);
}

}  // namespace
}  // namespace spdld

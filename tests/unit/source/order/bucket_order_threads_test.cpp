// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "source/order/bucket_order.h"
#include "source/order/sampler.h"
#include "tests/unit/source/order/epoch_of.h"

namespace spdld::source {
namespace {

// More windows than are kept, so that threads make and drop what others read.
TEST(BucketOrder, IsTheSameForManyThreadsInAnyOrder) {
  const std::uint64_t items = 6000;
  std::vector<float> distinct(items);
  for (std::uint64_t i = 0; i < items; ++i) distinct[i] = static_cast<float>(i * 7919 % items);
  const auto lengths = std::make_shared<const Lengths>(std::move(distinct));
  const Shuffle shuffle{.kind = Shuffle::Kind::kGlobal,
                        .bucket = Shuffle::Bucket{.by = "duration", .window = 4, .run = 2}};
  constexpr std::uint64_t kSeed = 9;
  const std::vector<std::uint64_t> expected[] = {
      epoch_of(Sampler(items, shuffle, kSeed, lengths), 0),
      epoch_of(Sampler(items, shuffle, kSeed, lengths), 1)};
  const Sampler shared(items, shuffle, kSeed, lengths);
  std::vector<int> wrong(4);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        const Sampler copy = shared;
        KeyedRng rng(t);
        for (std::uint64_t i = 0; i < items; ++i) {
          // Half of them go through the epoch together, and so ask for one window at once.
          const std::uint64_t p = t % 2 == 0 ? i : rng.below(items);
          const std::uint64_t epoch = t % 2 == 0 ? 0 : rng.below(2);
          if (copy.item(epoch, p) != expected[epoch][p]) ++wrong[t];
        }
      });
  }
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_grid.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace spdld::source {
namespace {

using End = ClipsSpec::End;
using Sampling = ClipsSpec::Sampling;

std::vector<std::uint64_t> starts(const ClipGrid& grid, std::uint64_t length,
                                  std::uint64_t key = 0) {
  std::vector<std::uint64_t> starts;
  for (std::uint64_t k = 0; k < grid.count(length); ++k)
    starts.push_back(grid.start(length, k, key));
  return starts;
}

TEST(ClipGrid, LaysDenseClipsOneHopApart) {
  const ClipGrid grid{.span = 4, .hop = 3};
  EXPECT_EQ(starts(grid, 11), (std::vector<std::uint64_t>{0, 3, 6}));
  EXPECT_EQ(starts(grid, 10), (std::vector<std::uint64_t>{0, 3, 6}));
  EXPECT_EQ(starts(grid, 9), (std::vector<std::uint64_t>{0, 3}));
  EXPECT_EQ(starts(grid, 4), (std::vector<std::uint64_t>{0}));
}

TEST(ClipGrid, DropsWhatRunsOverTheEnd) {
  const ClipGrid grid{.span = 4, .hop = 4};
  EXPECT_TRUE(starts(grid, 3).empty());
  EXPECT_TRUE(starts(grid, 0).empty());
}

TEST(ClipGrid, CoversEveryFrameWherePaddingIsAllowed) {
  for (const std::uint64_t span : {1, 4, 7}) {
    for (const std::uint64_t hop : {1, 2, 4, 7}) {
      if (hop > span) continue;
      const ClipGrid grid{.end = End::kPad, .span = span, .hop = static_cast<double>(hop)};
      for (std::uint64_t length = 1; length < 40; ++length) {
        const auto all = starts(grid, length);
        std::set<std::uint64_t> covered;
        for (const std::uint64_t start : all) {
          EXPECT_LT(start, length);
          for (std::uint64_t i = start; i < std::min(start + span, length); ++i) covered.insert(i);
        }
        EXPECT_EQ(covered.size(), length);
        // The last one is needed.
        if (all.size() > 1) {
          EXPECT_LT(all[all.size() - 2] + span, length);
        }
      }
    }
  }
}

TEST(ClipGrid, SpreadsUniformClipsFromEndToEnd) {
  const ClipGrid grid{.sampling = Sampling::kUniform, .span = 10, .per_file = 4};
  EXPECT_EQ(starts(grid, 100), (std::vector<std::uint64_t>{0, 30, 60, 90}));
  EXPECT_EQ(starts(grid, 10), (std::vector<std::uint64_t>{0, 0, 0, 0}));
  EXPECT_TRUE(starts(grid, 9).empty());
  const ClipGrid one{.sampling = Sampling::kUniform, .span = 10};
  EXPECT_EQ(starts(one, 100), (std::vector<std::uint64_t>{45}));
}

TEST(ClipGrid, DrawsEveryBeginThatFits) {
  const ClipGrid grid{.sampling = Sampling::kRandom, .span = 10, .per_file = 3};
  std::set<std::uint64_t> seen;
  for (std::uint64_t key = 0; key < 400; ++key) {
    for (const std::uint64_t start : starts(grid, 15, key)) seen.insert(start);
  }
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(starts(grid, 1000, 7), starts(grid, 1000, 7));
  EXPECT_NE(starts(grid, 1000, 7), starts(grid, 1000, 8));
}

TEST(ClipGrid, AddsUpNoRoundingOfUnevenHops) {
  // A third of a second at 44100 Hz and at 8000 Hz, which is no whole number of samples.
  const ClipGrid grid{.span = 100, .hop = 8000.0 / 3};
  const auto all = starts(grid, 8'000'000);
  ASSERT_EQ(all.size(), 3000u);
  for (std::size_t k = 0; k < all.size(); k += 3) EXPECT_EQ(all[k], k / 3 * 8000);
}

TEST(ClipGrid, SaysWhetherATimeHoldsAClip) {
  EXPECT_TRUE((ClipGrid{.span = 4}).fits(10, 6));
  EXPECT_FALSE((ClipGrid{.span = 4}).fits(10, 7));
  EXPECT_TRUE((ClipGrid{.end = End::kLoop, .span = 4}).fits(10, 9));
  EXPECT_FALSE((ClipGrid{.end = End::kLoop, .span = 4}).fits(10, 10));
}

}  // namespace
}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#include "stream/span.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace spdld::stream {
namespace {

// 100 items; a phase of its own each time.
std::shared_ptr<pipeline::Phase> phase(Tail tail = Tail::kDrop, std::uint64_t batch = 5) {
  auto made = std::make_shared<pipeline::Phase>();
  made->items = 100;
  made->tail = tail;
  made->batch = batch;
  made->content = "content";
  made->seed = 1;
  return made;
}

// Ten steps in an epoch of two shards.
Span two_shards(const job::State& from, std::uint32_t shard = 0) {
  job::State state = from;
  state.shards = 2;
  return Span(phase(), state, shard);
}

std::vector<std::uint64_t> rows_of(const engine::BatchOrder& order) {
  std::vector<std::uint64_t> rows;
  for (std::uint64_t row = 0; row < order.rows.valid; ++row)
    rows.push_back(order.rows.position(row));
  return rows;
}

TEST(Span, CountsItsBatchesFromItsFirstPlaceThroughEpochs) {
  const Span span = two_shards({.epoch = 1, .step = 3, .position = 30});
  EXPECT_EQ(span.at(0).at(), (job::StepAt{1, 3}));
  EXPECT_EQ(span.at(6).at(), (job::StepAt{1, 9}));
  EXPECT_EQ(span.at(7).at(), (job::StepAt{2, 0}));
  EXPECT_EQ(span.at(7 + 10 * 40 + 4).at(), (job::StepAt{42, 4}));
}

TEST(Span, OrdersItsShardsRowsAndNamesThePlaceBehindAll) {
  const Span span = two_shards({.epoch = 1, .step = 3, .position = 30}, 1);
  const engine::BatchOrder first = span.order(0);
  EXPECT_EQ(first.epoch, 1U);
  EXPECT_EQ(first.step, 3U);
  EXPECT_EQ(first.next_position, 40U);
  EXPECT_EQ(rows_of(first), (std::vector<std::uint64_t>{35, 36, 37, 38, 39}));
  const engine::BatchOrder next_epoch = span.order(8);
  EXPECT_EQ(next_epoch.epoch, 2U);
  EXPECT_EQ(next_epoch.step, 1U);
  EXPECT_EQ(rows_of(next_epoch), (std::vector<std::uint64_t>{15, 16, 17, 18, 19}));
}

TEST(Span, GoesOnExactlyFromAPositionThatIsNotOfItsOwnMaking) {
  // 37 rows were read under another world size and batch size.
  std::vector<bool> read(100);
  for (std::uint32_t shard = 0; shard < 3; ++shard) {
    const Span span(phase(Tail::kKeep, 4), {.epoch = 0, .step = 9, .position = 37, .shards = 3},
                    shard);
    for (Index index = 0; span.at(index).epoch == 0; ++index) {
      for (const std::uint64_t row : rows_of(span.order(index))) {
        EXPECT_FALSE(read[row]) << "row " << row << " once more";
        read[row] = true;
      }
    }
  }
  for (std::uint64_t row = 0; row < 100; ++row) EXPECT_EQ(read[row], row >= 37) << row;
}

TEST(Span, RunsItsPhaseAloneWhicheverVersionWaits) {
  const Span span = two_shards({.step = 9, .position = 90, .version = 7, .next_version = 8});
  EXPECT_EQ(span.at(1).at(), (job::StepAt{1, 0}));
  EXPECT_EQ(span.order(1).rows.rows, 5U);
}

TEST(Span, FindsTheBatchOfAPlace) {
  const Span span = two_shards({.epoch = 1, .step = 3, .position = 30});
  for (const Index index : {0, 1, 6, 7, 411}) {
    const job::State at = span.at(index);
    EXPECT_EQ(span.index_of(at.at()), index);
    EXPECT_EQ(span.index_of(at.at(), at.position), index);
    EXPECT_EQ(span.index_of(at.at(), at.position + 1), std::nullopt);
  }
  EXPECT_EQ(span.index_of(job::StepAt{1, 2}), std::nullopt) << "before its begin";
  EXPECT_EQ(span.index_of(job::StepAt{0, 5}), std::nullopt);
  EXPECT_EQ(span.index_of(job::StepAt{1, 10}), std::nullopt) << "behind its epoch's end";
  EXPECT_EQ(span.index_of(job::kNever), std::nullopt);
}

TEST(Span, MeetsASpanThatBeginsInItsMidst) {
  const Span earlier = two_shards({.epoch = 1, .step = 3, .position = 30});
  const Span later = two_shards({.epoch = 2, .step = 1, .position = 10});
  EXPECT_EQ(earlier.index_of(later), 8U);
  EXPECT_EQ(later.index_of(earlier), std::nullopt) << "it begins before";
  EXPECT_EQ(earlier.index_of(earlier), 0U);
  for (const Index on : {0, 5, 30}) EXPECT_EQ(earlier.at(8 + on), later.at(on));
}

TEST(Span, MeetsNoSpanOfOtherBatches) {
  const job::State from{.epoch = 0, .step = 2, .position = 20, .shards = 2};
  const Span span(phase(), from, 0);
  ASSERT_EQ(span.index_of(Span(phase(), from, 0)), 0U);
  EXPECT_EQ(span.index_of(Span(phase(), from, 1)), std::nullopt);
  job::State other = from;
  other.shards = 4;
  EXPECT_EQ(span.index_of(Span(phase(), other, 0)), std::nullopt);
  other = from;
  other.position = 21;
  EXPECT_EQ(span.index_of(Span(phase(), other, 0)), std::nullopt);
  EXPECT_EQ(span.index_of(Span(phase(Tail::kKeep), from, 0)), std::nullopt);
  EXPECT_EQ(span.index_of(Span(phase(Tail::kDrop, 2), from, 0)), std::nullopt);
  const auto content = phase();
  content->content = "other content";
  EXPECT_EQ(span.index_of(Span(content, from, 0)), std::nullopt);
  const auto seed = phase();
  seed->seed = 2;
  EXPECT_EQ(span.index_of(Span(seed, from, 0)), std::nullopt);
  const auto items = phase();
  items->items = 101;
  EXPECT_EQ(span.index_of(Span(items, from, 0)), std::nullopt);
}

}  // namespace
}  // namespace spdld::stream

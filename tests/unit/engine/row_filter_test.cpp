// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/row_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/explain.h"
#include "engine/run.h"
#include "source/order/sharding.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/engine/batches.h"
#include "tests/unit/engine/no_calls.h"
#include "tests/unit/engine/quiet_port.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/source/item/fake_sink.h"

namespace spdld::engine {
namespace {

using ::testing::AllOf;
using testing::compile;
using ::testing::ElementsAre;
using testing::FakeSource;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Kind = source::SourceField::Kind;

std::vector<source::SourceField> described_images() {
  return {{.name = "image"},
          {.name = "meta", .index = 1},
          {.name = "extra", .index = 2, .optional = true},
          {.name = "label", .kind = Kind::kValue, .classes = true},
          {.name = "boxes", .kind = Kind::kValue, .index = 1, .type = ValueType::kFloat64List}};
}

constexpr const char* kDescribed =
    "  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n"
    "  - decode_json: {field: meta, values: {score: {pointer: /score, type: float64}}}\n";
constexpr const char* kFilterBatch = "batch: {size: 4, max_bytes: 1KiB}\n";

struct Refused {
  std::string stages;
  std::string told;
};

class WrongFilter : public ::testing::TestWithParam<Refused> {};

TEST_P(WrongFilter, IsAnErrorOfItsStageThatSaysWhatToWrite) {
  const auto plan = compile(kDescribed + GetParam().stages, kFilterBatch, described_images());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message(), GetParam().told);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongFilter,
    ::testing::Values(
        Refused{"  - filter: {where: scor > 0.5}\n",
                "test.yaml:9:5: filter: where: column 1 of 'scor > 0.5': there is no field 'scor'; "
                "did you mean 'score'?"},
        Refused{"  - filter: {where: \"score == 'good'\"}\n",
                "test.yaml:9:5: filter: where: column 10 of 'score == 'good'': 'score' is float64 "
                "and ''good'' is text; they cannot be compared"},
        Refused{"  - filter: {where: image == 3}\n",
                "test.yaml:9:5: filter: where: column 1 of 'image == 3': 'image' is decoded "
                "(images), and a filter reads values: those that the listing knows, or that "
                "'decode_json' takes out of JSON before it"},
        Refused{"  - filter: {where: extra == 3}\n",
                "test.yaml:9:5: filter: where: column 1 of 'extra == 3': 'extra' is no value; "
                "whether a row has it tells 'extra_present'"},
        Refused{"  - filter: {where: score}\n",
                "test.yaml:9:5: filter: where: column 1 of 'score': 'score' is float64, and no "
                "condition; compare it with something"}));

TEST(RowFilter, RefusesAListThatAStageBeforeItHasTaken) {
  const auto plan =
      compile("  - fetch\n  - decode_image\n  - bounding_boxes\n  - filter: {where: 3 in boxes}\n",
              kFilterBatch, described_images());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message(),
            "test.yaml:8:5: filter: where: column 6 of '3 in boxes': 'boxes' is no value any more "
            "behind 'bounding_boxes': put the filter before that");
}

TEST(RowFilter, KnowsTheFieldsThatStagesBeforeItHaveMade) {
  const std::string filter = "  - filter: {where: score > 0.5}\n";
  const auto before = compile("  - fetch\n" + filter, kFilterBatch, described_images());
  ASSERT_FALSE(before);
  EXPECT_THAT(before.error().message(),
              HasSubstr("there is no field 'score'; there are: 'extra_present', 'label', 'boxes'"));
  const auto bytes =
      compile("  - fetch\n  - filter: {where: meta == 'x'}\n", kFilterBatch, described_images());
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().message(),
              HasSubstr("'meta' is bytes, and a filter reads values: 'decode_json' before it"));
  EXPECT_TRUE(compile(kDescribed + filter, kFilterBatch, described_images()));
}

TEST(RowFilter, TakesClassesByName) {
  auto spec = testing::parse("  - fetch\n  - filter: {where: \"label == 'dog'\"}\n", kFilterBatch);
  ASSERT_TRUE(spec) << spec.error().message();
  const auto plan =
      engine::compile(*std::move(spec), testing::ops(), described_images(), {}, {"cat", "dog"});
  EXPECT_TRUE(plan) << plan.error().message();
}

TEST(RowFilter, ComesBehindWhatMakesValuesAndBeforeWhatDecodes) {
  const std::string filter = "  - filter: {where: score > 0.5}\n";
  const auto with = compile(kDescribed + filter, kFilterBatch, described_images());
  ASSERT_TRUE(with) << with.error().message();
  EXPECT_THAT((*with)->task_ops, ElementsAre("decode_json", "decode_image + resize"));
  EXPECT_EQ((*with)->tasks_before_filters, 1U);
  const auto without = compile(kDescribed, kFilterBatch, described_images());
  ASSERT_TRUE(without) << without.error().message();
  EXPECT_THAT((*without)->task_ops, ElementsAre("decode_image + resize", "decode_json"));
}

TEST(RowFilter, IsExplained) {
  const auto plan = compile(std::string(kDescribed) + "  - filter: {where: score > 0.5}\n",
                            kFilterBatch, described_images());
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_THAT(
      explain(**plan, {.items = 4, .cpu_threads = 1, .arena_kind = "memfd"}),
      AllOf(HasSubstr("decode_image + resize + decode_json + filter"),
            HasSubstr("filter   score > 0.5; another item takes the place of a row that is")));
}

struct MadeRow {
  std::uint64_t item = 0;
  bool valid = false;

  friend bool operator==(const MadeRow&, const MadeRow&) = default;
};
using Rows = std::map<std::uint64_t, MadeRow>;  // by their positions

// Makes rows by hand, one after the other.
class FilteredRowMaker {
 public:
  FilteredRowMaker(std::shared_ptr<const Plan> plan, std::shared_ptr<FakeSource> source)
      : plan_(std::move(plan)),
        run_(plan_, source, source::Sampler(source->size(), {.kind = Shuffle::Kind::kGlobal}, 7), 7,
             RunPool{.workers = kWorkers}, RunLimits{}, clock_) {}

  Rows make(const source::BatchRows& rows, std::uint64_t epoch = 0) {
    std::vector<std::byte> slot(plan_->layout.slot_bytes());
    const BatchOrder order{.epoch = epoch, .rows = rows, .slot = slot.data()};
    Packing packing(plan_, rows.rows);
    Rows made;
    for (std::uint64_t index = 0; index < rows.rows; ++index) {
      if (!make(order, index, packing)) return made;
      std::int64_t item = 0;
      const std::size_t at = plan_->tensors.size();
      std::memcpy(&item, plan_->layout.row(slot.data(), at, index), sizeof item);
      made[rows.position(index)] = {static_cast<std::uint64_t>(item),
                                    *plan_->layout.row(slot.data(), at + 1, index) == std::byte{1}};
    }
    return made;
  }
  // All positions of an epoch.
  Rows make_epoch(std::uint64_t epoch = 0) {
    Rows all;
    for (std::uint64_t first = 0; first < kItems; first += kRows)
      all.merge(make({.first = first, .rows = kRows, .valid = kRows}, epoch));
    return all;
  }

  const Run& run() const { return run_; }
  NotingPort port;
  Status failure;

 private:
  static constexpr unsigned kWorkers = 3;

  bool make(const BatchOrder& order, std::uint64_t index, Packing& packing) {
    Row row;
    row.order = &order;
    row.port = &port;
    row.packing = &packing;
    row.index = index;
    StreamFailure why;
    while (true) {
      source::FakeSink sink;
      NoCalls no_calls;
      const RowState state =
          run_.process(row, ++calls_ % kWorkers, 0, {.fetch = sink, .call = no_calls}, 1, why);
      if (state == RowState::kDone) return true;
      if (state == RowState::kAgain) continue;
      EXPECT_EQ(state, RowState::kFailed);
      failure = why.status;
      return false;
    }
  }

  const std::shared_ptr<const Plan> plan_;
  SystemClock clock_;
  Run run_;
  unsigned calls_ = 0;
};

std::string document(std::uint64_t item) { return R"({"score": )" + std::to_string(item) + "}"; }

std::vector<std::string> documents() {
  std::vector<std::string> items;
  for (std::uint64_t item = 0; item < kItems; ++item) items.push_back(document(item));
  return items;
}

// Of items whose bytes are documents.
std::shared_ptr<const Plan> plan_of(const std::string& filters, const std::string& rest = "") {
  auto plan = compile(
      "  - fetch\n  - decode_json: {field: image, values: {score: {pointer: /score, type: "
      "int64}}}\n" +
          filters,
      kFilterBatch + rest);
  EXPECT_TRUE(plan) << plan.error().message();
  return plan ? *plan : nullptr;
}

FilteredRowMaker maker_of(const std::string& filters, std::vector<std::string> items = documents(),
                          const std::string& rest = "") {
  return {plan_of(filters, rest), std::make_shared<FakeSource>(std::move(items))};
}

TEST(FilteredRows, AreOthersWhereTheConditionDoesNotHoldAndValid) {
  FilteredRowMaker all = maker_of("");
  FilteredRowMaker few = maker_of("  - filter: {where: score < 6}\n");
  const Rows unfiltered = all.make_epoch();
  const Rows filtered = few.make_epoch();
  ASSERT_EQ(filtered.size(), kItems);
  for (const auto& [position, row] : filtered) {
    EXPECT_LT(row.item, 6U);
    EXPECT_TRUE(row.valid);
    if (unfiltered.at(position).item < 6) {
      EXPECT_EQ(row, unfiltered.at(position));
    }
  }
  EXPECT_NE(few.make_epoch(1), filtered);
}

TEST(FilteredRows, AreNoFailuresAndNoTasks) {
  FilteredRowMaker few = maker_of("  - filter: {where: score < 6}\n");
  few.make_epoch();
  EXPECT_THAT(few.port.failures, IsEmpty());
  EXPECT_EQ(few.run().process_stats().failures(), 0U);
  EXPECT_EQ(few.run().process_stats().tasks(), kItems);
  const Run::Judged judged = few.run().judged();
  EXPECT_EQ(judged.items, judged.rejected + kItems);
  EXPECT_GT(judged.rejected, kItems);
  FilteredRowMaker all = maker_of("");
  all.make_epoch();
  EXPECT_EQ(all.run().judged().items, 0U);
}

TEST(FilteredRows, StayAndAreNotValidWhereThatIsAskedFor) {
  FilteredRowMaker all = maker_of("");
  FilteredRowMaker marked = maker_of("  - filter: {where: score < 6, rejected: invalid}\n");
  Rows expected = all.make_epoch();
  for (auto& [position, row] : expected) row.valid = row.item < 6;
  EXPECT_EQ(marked.make_epoch(), expected);
  EXPECT_EQ(marked.run().judged().rejected, kItems - 6);
  EXPECT_EQ(marked.run().process_stats().failures(), 0U);
}

TEST(FilteredRows, MustPassAllFilters) {
  FilteredRowMaker both = maker_of(
      "  - filter: {where: score >= 4, rejected: invalid}\n  - filter: {where: score < 6}\n");
  for (const auto& [position, row] : both.make_epoch()) {
    EXPECT_LT(row.item, 6U);
    EXPECT_EQ(row.valid, row.item >= 4);
  }
}

TEST(FilteredRows, ReadWhatTheListingKnows) {
  FilteredRowMaker few = maker_of("  - filter: {where: label < 60}\n");  // ten times the item
  for (const auto& [position, row] : few.make_epoch()) EXPECT_LT(row.item, 6U);
}

TEST(FilteredRows, AreNotDecoded) {
  const auto jpeg = media::test::make_jpeg({.width = 40, .height = 30});
  std::vector<std::string> items(kItems, "no image");
  for (std::size_t item = 0; item < 6; ++item)
    items[item].assign(reinterpret_cast<const char*>(jpeg.data()), jpeg.size());
  const auto plan = compile(
      "  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n  - filter: {where: label < 60}\n");
  ASSERT_TRUE(plan) << plan.error().message();
  FilteredRowMaker few(*plan, std::make_shared<FakeSource>(items));
  for (const auto& [position, row] : few.make_epoch()) EXPECT_TRUE(row.valid);
  EXPECT_THAT(few.port.failures, IsEmpty());
}

TEST(FilteredRows, AreNotValidWhereASubstituteFailed) {
  std::vector<std::string> items = documents();
  for (std::size_t item = 0; item < 6; item += 2) items[item] = "no JSON";
  FilteredRowMaker few = maker_of("  - filter: {where: score < 6}\n", items);
  const Rows rows = few.make_epoch();
  std::map<std::uint64_t, int> failed;
  for (const SampleFailure& failure : few.port.failures) {
    EXPECT_EQ(failure.item % 2, 0U);
    EXPECT_LT(failure.item, 6U);
    ++failed[failure.position];
  }
  EXPECT_GT(failed.size(), 1U);
  for (const auto& [position, row] : rows) EXPECT_EQ(row.valid, !failed.contains(position));
  EXPECT_EQ(few.run().process_stats().failures(), few.port.failures.size());
}

TEST(FilteredRows, EndTheJobWhereSubstitutesMayNotFail) {
  std::vector<std::string> items = documents();
  items[3] = "no JSON";
  FilteredRowMaker few =
      maker_of("  - filter: {where: score == 3}\n", items, "on_error: {decode: fail}\n");
  few.make_epoch();
  EXPECT_THAT(few.failure.message(), HasSubstr("item 3 (fake/3)"));
}

TEST(FilteredRows, EndTheJobWhereNoItemPasses) {
  FilteredRowMaker none = maker_of("  - filter: {where: score < 0}\n");
  EXPECT_THAT(none.make({.first = 5, .rows = 1, .valid = 1}), IsEmpty());
  EXPECT_EQ(none.failure.code(), Code::kFailedPrecondition);
  EXPECT_EQ(none.failure.message(),
            "pipeline 'test': test.yaml:7:5: filter: for position 5 of epoch 0 257 items were "
            "tried and rejected, and 257 of all 257 items so far: mend what it asks, leave such "
            "items out by 'source.select.where' if the listing knows what it asks, or let them "
            "stay by 'rejected: invalid'");
}

TEST(FilteredRows, FollowFromTheirPositionsAlone) {
  std::vector<std::string> items = documents();
  for (std::size_t item = 0; item < kItems; item += 5) items[item] = "no JSON";
  const std::string filter = "  - filter: {where: score < 20}\n";
  const Rows expected = maker_of(filter, items).make_epoch(2);
  ASSERT_EQ(expected.size(), kItems);
  for (const std::uint32_t shards : {1U, 3U, 5U}) {
    // From a position on that an earlier run came to, the last shard first.
    constexpr std::uint64_t kResumedAt = 8;
    const source::Sharding epoch(kItems, Tail::kKeep,
                                 {.base = kResumedAt, .num_shards = shards, .batch = 4});
    FilteredRowMaker again = maker_of(filter, items);
    Rows rows;
    for (std::uint64_t step = epoch.end_step(); step-- > 0;) {
      for (std::uint32_t shard = 0; shard < shards; ++shard) {
        const source::BatchRows of = epoch.rows(step, shard);
        for (const auto& [position, row] : again.make(of, 2)) {
          if (position >= of.first && position < of.first + of.valid) rows[position] = row;
        }
      }
    }
    EXPECT_EQ(rows.size(), kItems - kResumedAt);
    for (const auto& [position, row] : rows) EXPECT_EQ(row, expected.at(position)) << position;
  }
}

}  // namespace
}  // namespace spdld::engine

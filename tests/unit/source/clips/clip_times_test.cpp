// SPDX-License-Identifier: Apache-2.0
// Which frame or sample a time from outside names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::ToyMedia;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Sampling = ClipsSpec::Sampling;

class ClipTimesTest : public ClipsFixture {
 protected:
  // Clips of a table whose rows name a file and a number of seconds.
  struct Row {
    std::string file;
    double seconds = 0;
  };
  Result<std::unique_ptr<Source>> open_rows(const std::vector<Row>& rows, ClipsSpec clips) {
    std::ostringstream lines;
    lines.precision(17);
    for (const Row& row : rows)
      lines << R"({"uri": ")" << row.file << R"(", "at": )" << row.seconds << "}\n";
    dir_.file("rows.jsonl", lines.str());
    TableSpec table;
    table.file = dir_.path("rows.jsonl");
    table.root = dir_.path("data");
    table.uris = {{.field = "video", .column = "uri"}};
    table.values = {{.field = "at", .column = "at", .type = ValueType::kFloat64}};
    clips.sampling = Sampling::kTimestamps;
    clips.times_field = "at";
    return try_open({.items = table, .clips = clips});
  }
  // Of a file with pictures at these times, in ticks.
  void put_pictures(const std::string& name, const std::vector<std::int64_t>& times,
                    std::int64_t ticks_per_second) {
    ToyMedia toy;
    const int video = toy.add_video(320, 240, ticks_per_second);
    for (const std::int64_t time : times)
      toy.put(video, {.size_bytes = 20, .key = true, .pts = time, .dts = time, .duration = 1});
    put(name, toy);
  }
};

// The frame nearest to a time by whole numbers: it is `numerator` / `denominator` ticks.
std::size_t nearest_of(const std::vector<std::int64_t>& times, std::int64_t numerator,
                       std::int64_t denominator) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (std::abs(times[i] * denominator - numerator) <
        std::abs(times[best] * denominator - numerator))
      best = i;
  }
  return best;
}

TEST_F(ClipTimesTest, NameTheNearestFrameAndTheEarlierOneAtATie) {
  std::mt19937 random(7);
  for (const std::int64_t ticks : {25, 1000, 15360, 90000}) {
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<std::int64_t> times;
      std::int64_t time = kind == 3 ? -ticks / 2 : 0;
      for (int i = 0; i < 60; ++i) {
        times.push_back(kind == 1 ? i * ticks * 1001 / 30000 : time);
        time += kind == 2 ? 1 + static_cast<std::int64_t>(random() % (ticks / 4)) : ticks / 25;
      }
      times.erase(std::unique(times.begin(), times.end()), times.end());
      put_pictures("a.toy", times, ticks);
      // Every fourth part of a tick, in steps that reach over all of the file.
      std::vector<Row> rows;
      std::vector<std::int64_t> expected;
      const std::int64_t step = std::max<std::int64_t>(1, (times.back() - times.front()) / 150);
      for (std::int64_t quarter = 4 * times.front(); quarter <= 4 * times.back(); quarter += step) {
        rows.push_back({"a.toy", static_cast<double>(quarter) / 4 / static_cast<double>(ticks)});
        expected.push_back(times[nearest_of(times, quarter, 4)]);
      }
      const auto source = open_rows(rows, {.frames = 1});
      ASSERT_TRUE(source) << source.error().message();
      ASSERT_EQ((*source)->size(), rows.size());
      for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_THAT(fetch(**source, i).frames, ElementsAre(expected[i]))
            << rows[i].seconds << " s at " << ticks << " ticks a second, kind " << kind;
    }
  }
}

TEST_F(ClipTimesTest, OfARowOutsideItsFileAreAnErrorOfTheRow) {
  put_pictures("a.toy", {10, 11, 12, 13}, 25);  // from 0.4 s to 0.56 s
  const auto source =
      open_rows({{"a.toy", 0.37}, {"a.toy", 0.39}, {"a.toy", 0.57}, {"a.toy", 0.59}, {"a.toy", -1}},
                {.frames = 1, .end = ClipsSpec::End::kPad});
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_THAT(uris(**source),
              ElementsAre("a.toy@0.37s", "a.toy@0.4s", "a.toy@0.52s", "a.toy@0.59s", "a.toy@-1s"));
  for (const std::uint64_t item : {0, 3, 4}) {
    const Status status = fetch_and_wait(**source, item, item_, {{.part = 0}});
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.message(), (*source)->uri(item) +
                                    ": its file has nothing at that time, but from 0.4 s to 0.56 "
                                    "s; correct 'at' of this row");
  }
  EXPECT_THAT(fetch(**source, 1).frames, ElementsAre(10));
  EXPECT_THAT(fetch(**source, 2).frames, ElementsAre(13));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("3 times outside of their file, each an error of its row, "
                                      "such as a.toy (0.37 s)"));
}

TEST_F(ClipTimesTest, OutsideAreNotPaddedSoundEither) {
  ToyMedia toy;
  toy.put_sound(toy.add_sound(8000), 10);
  put("a.toy", toy);
  const auto source =
      open_rows({{"a.toy", 0.5}, {"a.toy", 1}, {"a.toy", 1.001}},
                {.unit = ClipsSpec::Unit::kSeconds, .seconds = 0.25, .end = ClipsSpec::End::kPad});
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ(fetch(**source, 0).first_sample, 4000u);
  EXPECT_EQ(fetch(**source, 1).first_sample, 7999u);
  EXPECT_EQ(fetch_and_wait(**source, 2, item_, {{.part = 0}}).code(), Code::kDataLoss);
}

TEST_F(ClipTimesTest, OfWindowsNameTheNearestSampleAndTheEarlierOneAtATie) {
  ToyMedia toy;
  toy.put_sound(toy.add_sound(8000), 10);
  put("a.toy", toy);
  std::vector<Row> rows;
  for (int quarter = 0; quarter < 40; ++quarter) rows.push_back({"a.toy", quarter / 32000.0});
  const auto source = open_rows(rows, {.unit = ClipsSpec::Unit::kSeconds, .seconds = 0.1});
  ASSERT_TRUE(source) << source.error().message();
  for (int quarter = 0; quarter < 40; ++quarter)
    EXPECT_EQ(fetch(**source, static_cast<std::uint64_t>(quarter)).first_sample,
              static_cast<std::uint64_t>((quarter + 1) / 4));
}

TEST_F(ClipTimesTest, FarFromEveryFrameAreCounted) {
  put_video("a.toy", 100);  // a frame each 40 ms
  put_video("b.toy", 100);
  ASSERT_TRUE(open_rows({{"a.toy", 0.4}, {"a.toy", 0.4039}, {"b.toy", 0.3961}}, {.frames = 2}));
  EXPECT_THAT(warnings_, IsEmpty());
  ASSERT_TRUE(open_rows({{"a.toy", 0.4}, {"b.toy", 0.405}, {"a.toy", 1.19}}, {.frames = 2}));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              HasSubstr("2 times further than a tenth of a frame from every frame, whose nearest "
                        "one is taken, such as b.toy (0.405 s, 0.005 s off)"));
}

}  // namespace
}  // namespace spdld::source

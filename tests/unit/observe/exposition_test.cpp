// SPDX-License-Identifier: Apache-2.0
#include "observe/exposition.h"

#include <gtest/gtest.h>

#include "tests/unit/observe/read_metrics.h"

namespace spdld::observe {
namespace {

TEST(Exposition, WritesHelpAndTypeBeforeTheSamples) {
  Exposition metrics;
  metrics.counter("reads_total", "Reads that have ended.", 3, {{"device", "259:2"}});
  metrics.gauge("uptime_seconds", "Time since the start.", 0.25);
  EXPECT_EQ(metrics.text(),
            "# HELP reads_total Reads that have ended.\n"
            "# TYPE reads_total counter\n"
            "reads_total{device=\"259:2\"} 3\n"
            "# HELP uptime_seconds Time since the start.\n"
            "# TYPE uptime_seconds gauge\n"
            "uptime_seconds 0.25\n");
}

TEST(Exposition, WritesAHistogramAsCountsUpToEachBound) {
  const std::vector<double> bounds = {0.001, 10};
  Exposition metrics;
  for (const std::uint64_t long_ones : {0, 4})
    metrics.histogram("wait_seconds", "Waits.", bounds, std::vector<std::uint64_t>{3, 0, long_ones},
                      0.5, {{"job", "a"}});
  EXPECT_EQ(metrics.text(),
            "# HELP wait_seconds Waits.\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_count{job=\"a\"} 10\n"
            "wait_seconds_sum{job=\"a\"} 1\n"
            "wait_seconds_bucket{job=\"a\",le=\"0.001\"} 6\n"
            "wait_seconds_bucket{job=\"a\",le=\"10\"} 6\n"
            "wait_seconds_bucket{job=\"a\",le=\"+Inf\"} 10\n");
}

TEST(Exposition, EscapesQuotesBackslashesAndLineFeeds) {
  const std::string name = "a \"b\" \\c\\n\nd, {e}";
  Exposition metrics;
  metrics.gauge("ready", "Batches.", 1, {{"job", name}});
  EXPECT_NE(metrics.text().find(R"(ready{job="a \"b\" \\c\\n\nd, {e}"} 1)"), std::string::npos)
      << metrics.text();
  EXPECT_EQ(read_metrics(metrics.text()).value("ready", {{"job", name}}), 1);
}

TEST(Exposition, ShowsBytesThatAreNoTextByTheirNumber) {
  Exposition metrics;
  metrics.gauge("ready", "Batches.", 1, {{"job", "gr\xc3\xb6\xc3\x9f\xff\x1b[2J\r"}});
  EXPECT_EQ(read_metrics(metrics.text()).value("ready", {{"job", "größ\\xff\\x1b[2J\\r"}}), 1)
      << metrics.text();
}

TEST(Exposition, AddsUpSamplesOfTheSameLabels) {
  Exposition metrics;
  for (const std::string job : {"a\xff", "a\\xff", "b"})
    metrics.counter("rows_total", "Rows.", 2, {{"job", job}});
  const ReadMetrics read = read_metrics(metrics.text());
  EXPECT_EQ(read.value("rows_total", {{"job", "a\\xff"}}), 4);
  EXPECT_EQ(read.value("rows_total", {{"job", "b"}}), 2);
}

TEST(Exposition, WritesLargeCountsToTheLastDigit) {
  Exposition metrics;
  metrics.counter("bytes_total", "Bytes.", 1234567890123456.0);
  EXPECT_EQ(read_metrics(metrics.text()).value("bytes_total"), 1234567890123456.0);
}

TEST(ExpositionDeathTest, KnowsACounterByItsName) {
  Exposition metrics;
  EXPECT_DEATH(metrics.counter("rows", "Rows.", 1), "ends_with");
  EXPECT_DEATH(metrics.gauge("rows_total", "Rows.", 1), "ends_with");
  EXPECT_DEATH(metrics.histogram("waits_total", "Waits.", {}, std::vector<std::uint64_t>{1}, 1),
               "ends_with");
}

}  // namespace
}  // namespace spdld::observe

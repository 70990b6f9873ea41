// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/spec/fake_registry.h"

namespace spdld::spec {
namespace {

using ::testing::HasSubstr;
using Sampling = ClipsSpec::Sampling;

std::string with_windows(const std::string& windows) {
  return "pipeline: p\nsource:\n  files: {root: /data, label: none}\n  windows: " + windows +
         "\nstages: [fetch]\nbatch: {size: 4, max_bytes: 1MiB}\n";
}
ClipsSpec windows_of(const std::string& windows) {
  const auto spec = parse(with_windows(windows));
  EXPECT_TRUE(spec) << spec.error().message();
  EXPECT_TRUE(spec && spec->source.clips);
  return spec && spec->source.clips ? *spec->source.clips : ClipsSpec();
}
std::string windows_error(const std::string& windows) { return parse_error(with_windows(windows)); }

TEST(Windows, HaveDefaults) {
  const ClipsSpec expected{
      .unit = ClipsSpec::Unit::kSeconds, .seconds = 2, .sampling = Sampling::kDense};
  EXPECT_EQ(windows_of("{seconds: 2}"), expected);
}

TEST(Windows, ReadEveryKey) {
  const ClipsSpec dense{.unit = ClipsSpec::Unit::kSeconds,
                        .field = "sound",
                        .stream = "1",
                        .seconds = 30,
                        .hop_seconds = 0.5,
                        .end = ClipsSpec::End::kLoop,
                        .broken = ClipsSpec::Broken::kError};
  EXPECT_EQ(windows_of("{seconds: 30, hop: 0.5, end: loop, field: sound, stream: 1, broken: error, "
                       "sampling: dense}"),
            dense);
  const ClipsSpec drawn{.unit = ClipsSpec::Unit::kSeconds,
                        .stream = "eng",
                        .seconds = 1,
                        .sampling = Sampling::kRandom,
                        .per_file = 4,
                        .end = ClipsSpec::End::kPad};
  EXPECT_EQ(windows_of("{seconds: 1, sampling: random, per_file: 4, end: pad, stream: eng}"),
            drawn);
}

TEST(Windows, ReadTimes) {
  const auto with_times = [](ClipsSpec times) {
    times.unit = ClipsSpec::Unit::kSeconds;
    times.seconds = 1;
    times.sampling = Sampling::kTimestamps;
    return times;
  };
  EXPECT_EQ(windows_of("{seconds: 1, timestamps: [0, 2.5]}"), with_times({.times = {0, 2.5}}));
  EXPECT_EQ(windows_of("{seconds: 1, sampling: timestamps, timestamps: when}"),
            with_times({.times_field = "when"}));
}

TEST(Windows, MayBeWholeFiles) {
  ClipsSpec expected{.unit = ClipsSpec::Unit::kSeconds, .sampling = Sampling::kWhole};
  EXPECT_EQ(windows_of("{sampling: whole}"), expected);
  expected.field = "sound";
  expected.stream = "eng";
  expected.broken = ClipsSpec::Broken::kError;
  expected.min_seconds = 0.5;
  expected.max_seconds = 20;
  EXPECT_EQ(windows_of("{sampling: whole, min_seconds: 0.5, max_seconds: 20, field: sound, stream: "
                       "eng, broken: error}"),
            expected);
  EXPECT_EQ(
      windows_of("{sampling: whole, seconds: null, end: null, min_seconds: 2, max_seconds: 2}")
          .min_seconds,
      2);
}

TEST(Windows, RefuseKeysThatWholeFilesHaveNoUseFor) {
  EXPECT_EQ(
      windows_error("{sampling: whole, seconds: 3}"),
      "p.yaml:4:39: source.windows.seconds: 'sampling: whole' makes one window of each file, all "
      "of it; leave this out (over a base that has it, write 'seconds: null'), or write another "
      "sampling");
  for (const std::string text : {"hop: 3", "per_file: 3", "timestamps: [3]", "end: drop"}) {
    const std::string key = text.substr(0, text.find(':'));
    EXPECT_THAT(windows_error("{sampling: whole, " + text + "}"),
                HasSubstr("source.windows." + key + ": 'sampling: whole' makes one window"));
  }
  EXPECT_EQ(windows_error("{sampling: whole, min_seconds: 3, max_seconds: 2}"),
            "p.yaml:4:43: source.windows.min_seconds: it is more than max_seconds, so that no file "
            "would be left");
  EXPECT_THAT(windows_error("{sampling: whole, min_seconds: -1}"),
              HasSubstr("min_seconds: must be"));
}

TEST(Windows, RefuseBoundsOfLengthsThatAreOne) {
  EXPECT_EQ(windows_error("{seconds: 3, max_seconds: 20}"),
            "p.yaml:4:38: source.windows.max_seconds: files are left out by their length where "
            "windows are whole files: write 'sampling: whole', or leave this out");
  EXPECT_THAT(windows_error("{sampling: random, seconds: 3, min_seconds: 20}"),
              HasSubstr("source.windows.min_seconds: files are left out"));
  EXPECT_THAT(windows_error("{min_duration: 3}"),
              HasSubstr("write 'min_seconds: S' beside 'sampling: whole'"));
}

TEST(Windows, RefuseKeysThatContradictEachOther) {
  EXPECT_EQ(windows_error("{seconds: 1, per_file: 4}"),
            "p.yaml:4:35: source.windows.per_file: add 'sampling: uniform', which spreads them "
            "evenly, or 'sampling: random'");
  EXPECT_EQ(windows_error("{seconds: 1, sampling: dense, per_file: 4}"),
            "p.yaml:4:52: source.windows.per_file: of a file there are as many as 'sampling: "
            "dense' gives; leave it out, or write 'sampling: uniform' or 'random'");
  EXPECT_EQ(windows_error("{seconds: 1, sampling: random, hop: 4}"),
            "p.yaml:4:48: source.windows.hop: it is how far apart those of 'sampling: dense' are; "
            "leave it out, or write that");
  EXPECT_THAT(windows_error("{seconds: 1, sampling: random, timestamps: [1]}"),
              HasSubstr("leave one of the two out"));
  EXPECT_THAT(windows_error("{seconds: 1, sampling: timestamps}"), HasSubstr("add 'timestamps'"));
}

TEST(Windows, RefuseValuesOutOfBounds) {
  EXPECT_EQ(windows_error("{}"),
            "p.yaml:4:12: 'source.windows.seconds' is missing: how long each window is; or write "
            "'sampling: whole', which makes one of all of each file");
  EXPECT_THAT(windows_error("{seconds: 0}"), HasSubstr("source.windows.seconds"));
  EXPECT_THAT(windows_error("{seconds: 1, timestamps: []}"), HasSubstr("name at least one time"));
  EXPECT_THAT(windows_error("{seconds: 1, timestamps: [-1]}"), HasSubstr("timestamps"));
  EXPECT_THAT(windows_error("{seconds: 1, sampling: keyframes}"), HasSubstr("keyframes"));
  EXPECT_THAT(windows_error("{duration: 1}"), HasSubstr("write 'seconds: S'"));
}

}  // namespace
}  // namespace spdld::spec

// SPDX-License-Identifier: Apache-2.0
// What saved positions and caches know clips by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::ToyMedia;
using ::testing::ElementsAre;
using Sampling = ClipsSpec::Sampling;
using ClipDigestsTest = ClipsFixture;

TEST_F(ClipDigestsTest, AreOfClipsAndOfPackets) {
  put_video("a.toy", 100);
  const auto digests = [this](const ClipsSpec& spec) {
    const auto source = open(spec);
    return std::pair(source->listing_digest(), source->values_digest());
  };
  const auto base = digests({.frames = 4});
  EXPECT_EQ(digests({.frames = 4}), base);
  EXPECT_NE(digests({.frames = 5}).first, base.first);
  EXPECT_NE(digests({.frames = 4, .stride = 2}).first, base.first);
  put_video("a.toy", 100, 5);  // the same frames, packed otherwise
  EXPECT_EQ(digests({.frames = 4}).first, base.first);
  EXPECT_NE(digests({.frames = 4}).second, base.second);
  put_video("a.toy", 103);
  EXPECT_NE(digests({.frames = 4}).first, base.first);
}

TEST_F(ClipDigestsTest, KeepPartsApartByWhatTheirBytesDependOn) {
  put_video("a.toy", 100);
  const auto source = open({.frames = 4});
  std::set<std::uint64_t> keys;
  for (std::uint64_t item = 0; item < source->size(); ++item)
    EXPECT_TRUE(keys.insert(source->part_key(item, 0)).second);
  EXPECT_FALSE(keys.contains(open({.frames = 5})->part_key(0, 0)));
  EXPECT_TRUE(keys.contains(open({.frames = 4, .hop_frames = 8})->part_key(1, 0)));
}

TEST_F(ClipDigestsTest, StayWhatSavedPositionsHave) {
  put_video("a.toy", 100);
  ToyMedia sound;
  sound.put_sound(sound.add_sound(24'000), 800);
  put("b.toy", sound);
  const auto digest = [this](const ClipsSpec& spec) { return open(spec)->listing_digest(); };
  EXPECT_EQ(digest({.frames = 4}), "b630f5273bebb848bdb463421f2f5836");
  EXPECT_EQ(digest({.frames = 4, .sampling = Sampling::kKeyframes}),
            "5b1687251e10c4f94355c7b5e657e1e9");
  EXPECT_EQ(digest({.frames = 4, .sampling = Sampling::kRandom, .per_file = 2, .stack = true}),
            "185ea2966df7f1c5559947fb669daaed");
  ClipsSpec windows{.unit = ClipsSpec::Unit::kSeconds, .seconds = 0.5};
  EXPECT_EQ(digest(windows), "825eab2f1f6110a670bfa63de78b2ae5");
  windows.end = ClipsSpec::End::kPad;
  windows.hop_seconds = 0.4;
  EXPECT_EQ(digest(windows), "088d125fdf0d17391faa5819bb646450");
  windows.sampling = Sampling::kTimestamps;
  windows.times = {0.25, 1};
  EXPECT_EQ(digest(windows), "833f1c27c18f1cf707d1b5245687c4e7");
}

}  // namespace
}  // namespace spdld::source

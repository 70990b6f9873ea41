// SPDX-License-Identifier: Apache-2.0
#include "media/audio/sound_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace spdld::media::test {
namespace {

constexpr std::uint64_t kWindowRoom = 16 << 20;

// Adds samples whose values are their numbers in the stream, in the second channel negative.
bool append(SoundWindow& window, std::int64_t count) {
  const std::int64_t begin = window.position();
  return window.append(count,
                       [begin](int channel, std::int64_t from, std::int64_t many, float* out) {
                         for (std::int64_t i = 0; i < many; ++i)
                           out[i] = static_cast<float>(begin + from + i) * (channel == 0 ? 1 : -1);
                       });
}

TEST(SoundWindow, KeepsTheSamplesInsideIt) {
  Sound sound;
  SoundWindow window;
  window.begin(sound, 0, 3, 7, kWindowRoom);
  window.set_format(Channels{2, 0}, 8000);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(append(window, 2));
  EXPECT_TRUE(window.is_full());
  window.finish();
  EXPECT_EQ(sound.length, 4);
  EXPECT_THAT(sound.values, ::testing::ElementsAre(3, 4, 5, 6, -3, -4, -5, -6));
}

TEST(SoundWindow, IsEmptyWhereAllSamplesComeBeforeIt) {
  Sound sound;
  SoundWindow window;
  window.begin(sound, 0, 10, 20, kWindowRoom);
  window.set_format(Channels{2, 0}, 8000);
  EXPECT_TRUE(append(window, 10));
  EXPECT_FALSE(window.is_full());
  window.finish();
  EXPECT_EQ(sound.channels, 2);
  EXPECT_EQ(sound.length, 0);
  EXPECT_THAT(sound.values, ::testing::IsEmpty());
}

}  // namespace
}  // namespace spdld::media::test

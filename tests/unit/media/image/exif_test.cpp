// SPDX-License-Identifier: Apache-2.0
#include "media/image/exif.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/unit/media/image/exif_maker.h"

namespace spdld::media::test {
namespace {

TEST(Exif, OrientationIsReadInBothByteOrders) {
  for (unsigned value = 1; value <= 8; ++value) {
    EXPECT_EQ(exif_orientation(make_tiff(value, true)), static_cast<int>(value));
    EXPECT_EQ(exif_orientation(make_tiff(value, false)), static_cast<int>(value));
  }
}

TEST(Exif, OrientationMayBeALong) {
  EXPECT_EQ(exif_orientation(make_tiff(6, true, 0x0112, 4)), 6);
  EXPECT_EQ(exif_orientation(make_tiff(6, false, 0x0112, 4)), 6);
}

TEST(Exif, WithoutTheTagMeansUpright) {
  EXPECT_EQ(exif_orientation(make_tiff(6, true, 0x0110)), 1);
}

TEST(Exif, OutOfRangeMeansUpright) {
  for (const unsigned value : {0U, 9U, 0xFFFFU}) {
    EXPECT_EQ(exif_orientation(make_tiff(value, true)), 1) << value;
    EXPECT_EQ(exif_orientation(make_tiff(value, false)), 1) << value;
  }
}

TEST(Exif, OfAWrongTypeOrCountMeansUpright) {
  EXPECT_EQ(exif_orientation(make_tiff(6, true, 0x0112, 2)), 1);
  EXPECT_EQ(exif_orientation(make_tiff(6, true, 0x0112, 3, 2)), 1);
}

TEST(Exif, CutAnywhereNeverReadsBeyondItsEnd) {
  const std::vector<std::byte> tiff = make_tiff(6, false);
  for (std::size_t size = 0; size <= tiff.size(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees a step too far.
    const std::vector<std::byte> part(tiff.begin(),
                                      tiff.begin() + static_cast<std::ptrdiff_t>(size));
    const int orientation = exif_orientation(part);
    EXPECT_TRUE(orientation == 1 || orientation == 6);
  }
}

TEST(Exif, WithADirectoryBeyondTheEndMeansUpright) {
  for (const unsigned char high : {0x7F, 0xFF}) {
    std::vector<std::byte> tiff = make_tiff(6, true);
    tiff[4] = std::byte{high};
    EXPECT_EQ(exif_orientation(tiff), 1);
  }
}

TEST(Exif, OfNoiseIsAlwaysAnOrientation) {
  KeyedRng rng(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> tiff = make_tiff(6, round % 2 == 0);
    for (int i = 0; i < 4; ++i) tiff[rng.below(tiff.size())] = static_cast<std::byte>(rng.next());
    const int orientation = exif_orientation(tiff);
    ASSERT_GE(orientation, 1);
    ASSERT_LE(orientation, 8);
  }
}

}  // namespace
}  // namespace spdld::media::test

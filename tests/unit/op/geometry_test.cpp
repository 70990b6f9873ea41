// SPDX-License-Identifier: Apache-2.0
#include "op/geometry.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace spdld {
namespace {

// An image whose pixels say where in the source they come from; 0 is what lies beyond.
struct Picture {
  Size size;
  std::vector<int> pixels;

  int at(int x, int y) const {
    if (x < 0 || y < 0 || x >= size.width || y >= size.height) return 0;
    return pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(size.width) +
                  static_cast<std::size_t>(x)];
  }
  friend bool operator==(const Picture&, const Picture&) = default;
};

template <typename Pixel>
Picture draw(Size size, Pixel pixel) {
  Picture picture{size, {}};
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) picture.pixels.push_back(pixel(x, y));
  }
  return picture;
}

Picture source(Size size) {
  return draw(size, [size](int x, int y) { return 1 + x + y * size.width; });
}
Picture crop(const Picture& in, Rect rect) {
  return draw(rect.size(), [&](int x, int y) { return in.at(rect.x + x, rect.y + y); });
}
Picture flip(const Picture& in) {
  return draw(in.size, [&](int x, int y) { return in.at(in.size.width - 1 - x, y); });
}
// Takes the pixel in the middle: symmetric for the odd factors used here, like every filter that is
// given by the distance from the centre.
Picture resize(const Picture& in, Size size) {
  return draw(size, [&](int x, int y) {
    return in.at((2 * x + 1) * in.size.width / (2 * size.width),
                 (2 * y + 1) * in.size.height / (2 * size.height));
  });
}

Picture render(const Geometry& chain, const Picture& from) {
  const Picture scaled = resize(crop(from, chain.crop), chain.scaled);
  const Picture shown = crop(scaled, chain.window);
  return chain.flip ? flip(shown) : shown;
}

int between(KeyedRng& rng, int low, int high) {
  return low + static_cast<int>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
}

Rect any_rect(KeyedRng& rng, Size size, bool may_reach_beyond) {
  if (may_reach_beyond) {
    return {between(rng, -4, size.width), between(rng, -4, size.height), between(rng, 1, 9),
            between(rng, 1, 9)};
  }
  const int x = between(rng, 0, size.width - 1);
  const int y = between(rng, 0, size.height - 1);
  return {x, y, between(rng, 1, size.width - x), between(rng, 1, size.height - y)};
}

TEST(Geometry, DoesNothingAtFirst) {
  const Geometry chain = Geometry::identity({5, 4});
  EXPECT_EQ(chain.output(), (Size{5, 4}));
  EXPECT_FALSE(chain.resizes());
  EXPECT_EQ(render(chain, source({5, 4})), source({5, 4}));
}

// Whatever is appended, the chain shows the same pixels as one step after the other; a step that it
// refuses begins a new chain on the pixels so far.
TEST(Geometry, ShowsTheSamePixelsAsOneStepAfterTheOther) {
  int refused_crops = 0;
  int refused_resizes = 0;
  for (std::uint64_t run = 0; run < 1500; ++run) {
    KeyedRng rng(run);
    const Size size{between(rng, 1, 12), between(rng, 1, 12)};
    Picture expected = source(size);
    Picture base = expected;
    Geometry chain = Geometry::identity(size);
    for (int step = 0; step < 6; ++step) {
      bool taken = true;
      switch (rng.below(4)) {
        case 0: {
          const Rect rect = any_rect(rng, expected.size, rng.below(3) == 0);
          taken = chain.append_crop(rect);
          if (!taken) {
            ++refused_crops;
            ASSERT_EQ(render(chain, base), expected);
            base = expected;
            chain = Geometry::identity(base.size);
            ASSERT_TRUE(chain.append_crop(rect));
          }
          expected = crop(expected, rect);
          break;
        }
        case 1:
          chain.append_flip();
          expected = flip(expected);
          break;
        default: {
          const int factor = 1 + 2 * static_cast<int>(rng.below(2));
          const Size larger{expected.size.width * factor, expected.size.height * factor};
          if (larger.width > 300 || larger.height > 300) break;
          taken = chain.append_resize(larger, Interpolation::kBilinear, true);
          if (!taken) {
            ++refused_resizes;
            base = expected;
            chain = Geometry::identity(base.size);
            ASSERT_TRUE(chain.append_resize(larger, Interpolation::kBilinear, true));
          }
          expected = resize(expected, larger);
        }
      }
      ASSERT_EQ(chain.output(), expected.size) << "run " << run << " step " << step;
      ASSERT_EQ(render(chain, base), expected) << "run " << run << " step " << step;
    }
  }
  EXPECT_GT(refused_crops, 30);
  EXPECT_GT(refused_resizes, 30);
}

TEST(Geometry, RefusesACropThatWouldBringBackWhatAnEarlierOneTook) {
  Geometry chain = Geometry::identity({10, 10});
  ASSERT_TRUE(chain.append_crop({2, 2, 4, 4}));
  const Rect before = chain.window;
  EXPECT_FALSE(chain.append_crop({-1, 0, 5, 4}));
  EXPECT_FALSE(chain.append_crop({0, 0, 5, 4}));
  EXPECT_EQ(chain.window, before);
  EXPECT_TRUE(chain.append_crop({1, 1, 2, 2}));
}

TEST(Geometry, TakesACropBeyondTheImageItself) {
  Geometry chain = Geometry::identity({10, 10});
  ASSERT_TRUE(chain.append_crop({-2, -2, 14, 14}));
  EXPECT_EQ(chain.output(), (Size{14, 14}));
  EXPECT_TRUE(chain.append_crop({-5, -5, 20, 20}));
  EXPECT_EQ(chain.window, (Rect{-7, -7, 20, 20}));
}

TEST(Geometry, RefusesASecondResize) {
  Geometry chain = Geometry::identity({10, 10});
  ASSERT_TRUE(chain.append_resize({5, 5}, Interpolation::kBilinear, true));
  EXPECT_FALSE(chain.append_resize({7, 7}, Interpolation::kBilinear, true));
  EXPECT_TRUE(chain.append_resize({5, 5}, Interpolation::kBilinear, true));
  EXPECT_EQ(chain.output(), (Size{5, 5}));
}

TEST(Geometry, RefusesToResizeWhatReachesBeyondTheSource) {
  Geometry chain = Geometry::identity({10, 10});
  ASSERT_TRUE(chain.append_crop({-1, 0, 10, 10}));
  EXPECT_FALSE(chain.append_resize({5, 5}, Interpolation::kBilinear, true));
  EXPECT_TRUE(chain.append_resize({10, 10}, Interpolation::kBilinear, true));  // nothing to do
}

TEST(Geometry, RefusesToResizeAMirroredImageByNearest) {
  Geometry chain = Geometry::identity({10, 10});
  chain.append_flip();
  EXPECT_FALSE(chain.append_resize({4, 4}, Interpolation::kNearest, false));
  EXPECT_TRUE(chain.append_resize({4, 4}, Interpolation::kBilinear, true));
}

TEST(Geometry, RefusesToResizeAMirroredMask) {
  Geometry chain = Geometry::identity({10, 10});
  chain.nearest_only = true;
  chain.append_flip();
  EXPECT_FALSE(chain.append_resize({4, 4}, Interpolation::kBilinear, true));
}

TEST(Geometry, TakesPixelsOfAMaskAsTheyAre) {
  Geometry chain = Geometry::identity({10, 10});
  chain.nearest_only = true;
  ASSERT_TRUE(chain.append_resize({4, 4}, Interpolation::kBicubic, true));
  EXPECT_EQ(chain.interpolation, Interpolation::kNearestExact);
}

TEST(Geometry, KnowsThatItWasCroppedEvenToAllThereWas) {
  Geometry chain = Geometry::identity({10, 10});
  ASSERT_TRUE(chain.append_resize({4, 4}, Interpolation::kBilinear, true));
  chain.append_flip();
  EXPECT_FALSE(chain.cropped);
  ASSERT_TRUE(chain.append_crop({0, 0, 4, 4}));
  EXPECT_TRUE(chain.cropped);
}

TEST(Geometry, KeepsHowTheOneResizeSamples) {
  Geometry chain = Geometry::identity({10, 10});
  ASSERT_TRUE(chain.append_resize({4, 4}, Interpolation::kBicubic, false));
  EXPECT_EQ(chain.interpolation, Interpolation::kBicubic);
  EXPECT_FALSE(chain.antialias);
  EXPECT_TRUE(chain.resizes());
}

}  // namespace
}  // namespace spdld

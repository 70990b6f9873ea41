// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/allocations.h"
#include "tests/unit/transform/images.h"

namespace spdld::transform {
namespace {

TEST(ImagePass, AllocatesNothingOnceItHasSeenALargerImage) {
  const TestImage image = noise(300, 200, 3);
  std::vector<std::byte> out(64 * 64 * 3 * 4);
  ImagePass pass;
  const auto run_one = [&](Geometry geometry, const ImageTarget& target) {
    const Rect region = pass.begin(geometry, 3, target);
    for (int y = 0; y < region.height; ++y) {
      pass.row(y, image.pixels.data() + ((region.y + y) * image.width + region.x) * 3);
    }
    pass.finish();
  };
  const auto images = [&](int most) {
    KeyedRng rng(3);
    for (int i = 0; i < 50; ++i) {
      const auto interpolation = static_cast<Interpolation>(rng.below(3));
      const int width =
          most / 2 + static_cast<int>(rng.below(static_cast<std::uint64_t>(most) / 2));
      Geometry geometry = resized({width, most * 2 / 3}, {64, 64}, interpolation);
      geometry.flip = i % 2 == 0;
      const PixelFormat format{.dtype = i % 3 == 0 ? DType::kUInt8 : DType::kFloat32};
      run_one(geometry, {out.data(), format, i % 4 < 2 ? Layout::kNCHW : Layout::kNHWC});
    }
  };
  images(300);
  run_one(resized({300, 200}, {64, 64}, Interpolation::kBicubic), {out.data(), {}, Layout::kNCHW});
  const int before = testing::allocations();
  images(200);
  EXPECT_EQ(testing::allocations(), before);
}

}  // namespace
}  // namespace spdld::transform

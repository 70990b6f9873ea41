// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/transform/images.h"

namespace spdld::transform {
namespace {

// Makes the kernels take the best of `targets` until it goes.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { force(target); }
  ~ForcedTarget() { force(0); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

 private:
  static void force(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> all;
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    all.push_back(left & -left);
  }
  return all;
}

std::vector<std::byte> everything(const PixelFormat& format) {
  ImagePass pass;
  std::vector<std::byte> all;
  KeyedRng rng(11);
  const auto side = [&](std::uint64_t most) { return static_cast<int>(rng.below(most)) + 1; };
  for (int i = 0; i < 400; ++i) {
    const int channels = i % 3 == 0 ? 1 : i % 7 == 0 ? 4 : i % 11 == 0 ? 2 : 3;
    const TestImage image = noise(side(300), side(30), channels, rng.next());
    const Size to = i % 5 == 0 ? image.size() : Size{side(150), side(40)};
    const auto interpolation = static_cast<Interpolation>(rng.below(3));
    Geometry geometry = resized(image.size(), to, interpolation, rng.below(4) != 0);
    if (i % 4 == 0) geometry.window = {side(20) - 10, side(20) - 10, side(150), side(40)};
    geometry.flip = rng.below(2) == 0;
    const Layout layout = i % 2 == 0 ? Layout::kNCHW : Layout::kNHWC;
    const std::vector<std::byte> bytes = run_bytes(pass, image, geometry, format, layout);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void expect_the_same_everywhere(const PixelFormat& format) {
  const std::vector<std::byte> expected = everything(format);
  for (const std::int64_t target : targets()) {
    const ForcedTarget forced(target);
    EXPECT_TRUE(everything(format) == expected) << hwy::TargetName(target);
  }
}

TEST(Targets, MakeTheSameBytes) { expect_the_same_everywhere({}); }

TEST(Targets, MakeTheSameFloats) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    expect_the_same_everywhere({.dtype = dtype,
                                .scale = 1.0F / 255.0F,
                                .normalized = true,
                                .mean = {0.485F, 0.456F, 0.406F, 0.5F},
                                .std = {0.229F, 0.224F, 0.225F, 0.25F}});
  }
}

}  // namespace
}  // namespace spdld::transform

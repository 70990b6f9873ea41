// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forced_target.h"
#include "tests/unit/transform/image/images.h"
#include "tests/unit/transform/sound/sounds.h"

namespace spdld::transform {
namespace {

using spdld::testing::all_targets;
using spdld::testing::ForcedTarget;

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
  for (const std::int64_t target : all_targets()) {
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

// The values of every op on sound that computes more than sums and products.
std::vector<float> all_of_sound() {
  const Sound sound = pattern(2, 7001);
  std::vector<float> all;
  const auto append = [&](const std::string& op, Values values) {
    const Sound made = changed(op, std::move(values), sound);
    all.insert(all.end(), made.values.begin(), made.values.end());
  };
  for (const std::int64_t n_fft : {400, 512, 62, 882}) append("spectrogram", {{"n_fft", n_fft}});
  append("mel_spectrogram", {{"power", 1.0}, {"pad_mode", std::string("replicate")}});
  append("log_mel", {{"n_mels", std::int64_t{128}}});
  append("mfcc", {});
  append("mfcc", {{"log_mels", true}, {"n_mfcc", std::int64_t{13}}});
  append("add_noise", {{"snr", Floats{3}}});
  append("speed_perturbation", {{"factors", Floats{0.9}}});
  return all;
}

TEST(Targets, MakeTheSameOfSound) {
  const std::vector<float> expected = all_of_sound();
  for (const std::int64_t target : all_targets()) {
    const ForcedTarget forced(target);
    EXPECT_TRUE(all_of_sound() == expected) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace spdld::transform

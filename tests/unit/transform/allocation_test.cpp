// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/allocations.h"
#include "tests/unit/transform/image/images.h"
#include "tests/unit/transform/sound/sounds.h"

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

TEST(AudioSteps, AllocateNothingOnceTheyHaveSeenALargerSound) {
  const std::map<std::string, Values> ops{
      {"pad_or_trim", {{"samples", std::int64_t{5000}}, {"crop", std::string("random")}}},
      {"mix_channels", {}},
      {"gain", {{"gain_db", Floats{-3, 3}}}},
      {"normalize_audio", {{"mode", std::string("rms")}}},
      {"add_noise", {{"snr", Floats{3, 20}}}},
      {"speed_perturbation", {{"factors", Floats{0.9, 1, 1.1}}}},
      {"spectrogram", {}},
      {"mel_spectrogram", {}},
      {"log_mel", {}},
      {"mfcc", {}}};
  const Sound large = pattern(2, 8000);
  const Sound small = pattern(2, 6001);
  for (const auto& [op, values] : ops) {
    SCOPED_TRACE(op);
    MadeStep step(op, values, {.sample_rate = 16000, .channels = 2});
    Sound sound = large;
    const auto run = [&](const Sound& from, std::uint64_t key) {
      sound.reshape(from.channels, 0, from.length);
      std::copy(from.values.begin(), from.values.end(), sound.values.begin());
      return step.run(sound, key).ok();
    };
    // What a step swaps is twice seen, and every factor drawn.
    for (std::uint64_t key = 0; key < 32; ++key) ASSERT_TRUE(run(large, key));
    const int before = testing::allocations();
    for (std::uint64_t key = 0; key < 32; ++key) ASSERT_TRUE(run(small, key));
    EXPECT_EQ(testing::allocations(), before);
  }
}

// An op that knows no length of its own makes at most this of a sound, by what its output says.
TEST(AudioSteps, TakeNoMoreMemoryThanTheirOpsSay) {
  const std::vector<std::pair<std::string, Values>> ops{
      {"pad_or_trim", {{"samples", std::int64_t{3'000'000}}}},
      {"pad_or_trim", {{"samples", std::int64_t{5000}}}},
      {"mix_channels", {}},
      {"gain", {}},
      {"normalize_audio", {{"mode", std::string("standard")}}},
      {"add_noise", {{"snr", Floats{3}}}},
      {"speed_perturbation", {{"factors", Floats{0.1}}}},
      {"speed_perturbation", {{"factors", Floats{0.901, 1.099, 10}}}},
      {"spectrogram", {{"n_fft", std::int64_t{65536}}, {"hop_length", std::int64_t{1000}}}},
      {"spectrogram", {{"n_fft", std::int64_t{400}}, {"hop_length", std::int64_t{3}}}},
      {"mel_spectrogram",
       {{"n_fft", std::int64_t{65536}},
        {"hop_length", std::int64_t{500}},
        {"n_mels", std::int64_t{4096}}}},
      {"log_mel", {}},
      {"mfcc",
       {{"n_fft", std::int64_t{8192}},
        {"hop_length", std::int64_t{100}},
        {"n_mels", std::int64_t{1024}},
        {"n_mfcc", std::int64_t{1024}}}}};
  for (const auto& [name, values] : ops) {
    SCOPED_TRACE(name);
    for (const std::int64_t samples : {40'000, 100'000}) {
      const auto op = made<AudioOp>(name, values);
      const AudioFormat in{.sample_rate = 16000, .channels = 2, .max_length = samples};
      const Result<AudioFormat> out = op->output(in);
      ASSERT_TRUE(out) << out.error().message();
      Sound sound = pattern(2, samples);
      Sound scratch;
      const testing::HeldBytes held;
      const auto step = op->make_step(in);
      ASSERT_TRUE(step->run(sound, scratch, KeyedRng(1)).ok());
      constexpr std::uint64_t kSmall = 64 << 10;
      EXPECT_LE(static_cast<std::uint64_t>(held.most()),
                out->most_bytes() + op->step_bytes(in) + kSmall)
          << samples;
    }
  }
}

}  // namespace
}  // namespace spdld::transform

// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/noise_op.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "op/audio.h"
#include "transform/params/audio_params.h"
#include "transform/params/size_params.h"
#include "transform/sound/sample_sums.h"
#include "transform/sound/wave_kernels.h"

namespace spdld::transform {
namespace {

class NoiseStep final : public AudioStep {
 public:
  explicit NoiseStep(Interval snr) : snr_(snr) {}

  Status run(Sound& sound, Sound& scratch, KeyedRng rng) override {
    const double snr = snr_.draw(rng);
    SPDLD_TRY(renew(scratch, 1, 0, sound.length));
    for (int c = 0; c < sound.channels; ++c) {
      const std::span<float> samples = sound.channel(c);
      const std::span<float> noise = scratch.values;
      draw(noise, rng);
      const double signal_energy = sums_of(samples).squares;
      const double noise_energy = sums_of(noise).squares;
      if (!std::isfinite(signal_energy)) return not_finite("add_noise");
      if (signal_energy == 0 || noise_energy == 0) continue;
      const double ratio = std::sqrt(signal_energy / noise_energy) * std::pow(10.0, -snr / 20);
      const auto factor = static_cast<float>(ratio);
      for (std::size_t i = 0; i < samples.size(); ++i) samples[i] += factor * noise[i];
    }
    return {};
  }

 private:
  void draw(std::span<float> noise, KeyedRng& rng) {
    for (std::size_t begin = 0; begin < noise.size(); begin += block_.size()) {
      for (std::uint64_t& word : words_) word = rng.next();
      normal_numbers(words_.data(), words_.size(), block_.data());
      std::copy_n(block_.data(), std::min(block_.size(), noise.size() - begin),
                  noise.data() + begin);
    }
  }

  Interval snr_;
  std::array<std::uint64_t, 256> words_{};
  std::array<float, 512> block_{};
};

class AddNoise final : public AudioOp {
 public:
  AddNoise(std::vector<std::string> fields, Interval snr) : AudioOp(std::move(fields)), snr_(snr) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_samples(in, "add_noise"));
    return in;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<NoiseStep>(snr_);
  }

 private:
  Interval snr_;
};

Result<std::unique_ptr<Op>> make_add_noise(const Params& params) {
  SPDLD_ASSIGN(const Interval snr, interval_of(params, "add_noise", "snr"));
  return std::make_unique<AddNoise>(fields_of(params), snr);
}

}  // namespace

OpInfo add_noise_op() {
  return {
      .name = "add_noise",
      .doc =
          "Adds white noise with normal values to each channel, scaled as "
          "torchaudio.transforms.AddNoise does; silence stays silence.",
      .params = {{.name = "snr",
                  .type = ParamType::kFloatList,
                  .doc = "The ratio of signal to noise in decibels: one number, or [low, high], "
                         "between which each sample draws.",
                  .min = -100,
                  .max = 200,
                  .min_items = 1,
                  .max_items = 2,
                  .scalar_ok = true},
                 sound_fields_param()},
      .make = make_add_noise};
}

}  // namespace spdld::transform

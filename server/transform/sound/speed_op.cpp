// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/speed_op.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/audio.h"
#include "transform/params/audio_params.h"
#include "transform/params/size_params.h"
#include "transform/sound/resampler.h"

namespace spdld::transform {
namespace {

constexpr std::uint64_t kMostWeights = std::uint64_t{1} << 22;  // 16 MiB for each worker
constexpr std::size_t kMostFactors = 64;

// The rate that samples are taken to have, so that they are faster by `factor` once they are
// resampled: truncated as torchaudio.functional.speed has it.
std::int64_t source_rate(int sample_rate, double factor) {
  return static_cast<std::int64_t>(factor * sample_rate);
}

std::int64_t resampled_length(std::int64_t length, int sample_rate, double factor) {
  // Of several such stages one after the other the text may ask for more than there are numbers.
  constexpr __int128 kMost = std::int64_t{1} << 56;
  const std::int64_t from = source_rate(sample_rate, factor);
  const __int128 made = (static_cast<__int128>(length) * sample_rate + from - 1) / from;
  return static_cast<std::int64_t>(std::min(made, kMost));
}

class SpeedStep final : public AudioStep {
 public:
  SpeedStep(int sample_rate, const std::vector<double>& factors) {
    for (const double factor : factors)
      resamplers_.emplace_back(source_rate(sample_rate, factor), sample_rate);
  }

  Status run(Sound& sound, Sound& scratch, KeyedRng rng) override {
    Resampler& resampler = resamplers_[rng.below(resamplers_.size())];
    if (!resampler.changes()) return {};
    SPDLD_TRY(renew(scratch, sound.channels, 0, resampler.length(sound.length)));
    scratch.sample_rate = sound.sample_rate;
    for (int c = 0; c < sound.channels; ++c)
      resampler.run(std::as_const(sound).channel(c), scratch.channel(c));
    std::swap(sound, scratch);
    return {};
  }

 private:
  std::vector<Resampler> resamplers_;
};

class SpeedPerturbation final : public AudioOp {
 public:
  SpeedPerturbation(std::vector<std::string> fields, std::vector<double> factors)
      : AudioOp(std::move(fields)), factors_(std::move(factors)) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_rate(in, "speed_perturbation"));
    SPDLD_TRY(check_weights(in.sample_rate));
    AudioFormat out = in;
    const std::int64_t longest = std::max(in.length, in.max_length);
    if (longest >= 0) {
      const double slowest = *std::min_element(factors_.begin(), factors_.end());
      out.max_length = resampled_length(longest, in.sample_rate, slowest);
    }
    const bool one =
        std::all_of(factors_.begin(), factors_.end(), [&](double f) { return f == factors_[0]; });
    out.length = one && in.length >= 0 ? out.max_length : -1;
    return out;
  }

  std::uint64_t step_bytes(const AudioFormat& in) const override {
    std::uint64_t weights = 0;
    for (const double factor : factors_)
      weights += Resampler::weights(source_rate(in.sample_rate, factor), in.sample_rate);
    return weights * sizeof(float);
  }

  std::unique_ptr<AudioStep> make_step(const AudioFormat& in) const override {
    return std::make_unique<SpeedStep>(in.sample_rate, factors_);
  }

 private:
  Status check_weights(int sample_rate) const {
    std::uint64_t weights = 0;
    for (const double factor : factors_) {
      if (source_rate(sample_rate, factor) < 1)
        return {Code::kInvalidArgument, "speed_perturbation: a factor of " +
                                            std::to_string(factor) + " leaves nothing of " +
                                            std::to_string(sample_rate) + " Hz: take a larger one"};
      weights += Resampler::weights(source_rate(sample_rate, factor), sample_rate);
    }
    if (weights <= kMostWeights) return {};
    return {Code::kInvalidArgument,
            "speed_perturbation: at " + std::to_string(sample_rate) +
                " Hz these factors make ratios of numbers that are too large, such as 15999 to "
                "16000, for which the filters would take " +
                std::to_string(weights * sizeof(float) >> 20) +
                " MiB: take fewer factors, of two decimals"};
  }

  std::vector<double> factors_;
};

Result<std::unique_ptr<Op>> make_speed_perturbation(const Params& params) {
  return std::make_unique<SpeedPerturbation>(fields_of(params),
                                             params.get<std::vector<double>>("factors"));
}

}  // namespace

OpInfo speed_perturbation_op() {
  return {.name = "speed_perturbation",
          .doc =
              "Makes the sound faster and higher, or slower and lower, by a factor that each "
              "sample draws, as torchaudio.transforms.SpeedPerturbation does: with the filter "
              "of torchaudio.functional.resample.",
          .params = {{.name = "factors",
                      .type = ParamType::kFloatList,
                      .doc = "The factors, all equally likely; above 1 the sound gets shorter. One "
                             "that is named twice is twice as likely.",
                      .min = 0.1,
                      .max = 10,
                      .min_items = 1,
                      .max_items = kMostFactors,
                      .scalar_ok = true},
                     sound_fields_param()},
          .make = make_speed_perturbation};
}

}  // namespace spdld::transform

// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/level_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/audio.h"
#include "transform/params/audio_params.h"
#include "transform/params/size_params.h"
#include "transform/sound/sample_sums.h"

namespace spdld::transform {
namespace {

constexpr double kMostDb = 200;

double ratio_of(double db) { return std::pow(10.0, db / 20); }

void scale(std::span<float> samples, float factor) {
  for (float& sample : samples) sample *= factor;
}

class MixChannelsStep final : public AudioStep {
 public:
  Status run(Sound& sound, Sound&, KeyedRng) override {
    const std::span<float> mix = sound.channel(0);
    for (int c = 1; c < sound.channels; ++c) {
      const std::span<const float> other = std::as_const(sound).channel(c);
      for (std::size_t i = 0; i < mix.size(); ++i) mix[i] += other[i];
    }
    if (sound.channels > 1) {
      const auto count = static_cast<float>(sound.channels);
      for (float& sample : mix) sample /= count;
    }
    sound.reshape(1, 0, sound.length);
    return {};
  }
};

class MixChannels final : public AudioOp {
 public:
  explicit MixChannels(std::vector<std::string> fields) : AudioOp(std::move(fields)) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_samples(in, "mix_channels"));
    AudioFormat out = in;
    out.channels = 1;
    return out;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<MixChannelsStep>();
  }
};

class GainStep final : public AudioStep {
 public:
  explicit GainStep(Interval gain_db) : gain_db_(gain_db) {}

  Status run(Sound& sound, Sound&, KeyedRng rng) override {
    scale(sound.values, static_cast<float>(ratio_of(gain_db_.draw(rng))));
    return {};
  }

 private:
  Interval gain_db_;
};

class Gain final : public AudioOp {
 public:
  Gain(std::vector<std::string> fields, Interval gain_db)
      : AudioOp(std::move(fields)), gain_db_(gain_db) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_samples(in, "gain"));
    return in;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<GainStep>(gain_db_);
  }

 private:
  Interval gain_db_;
};

enum class Level { kPeak, kRms, kStandard };

class NormalizeStep final : public AudioStep {
 public:
  NormalizeStep(Level level, double target_db) : level_(level), target_(ratio_of(target_db)) {}

  Status run(Sound& sound, Sound&, KeyedRng) override {
    if (sound.values.empty()) return {};
    const SampleSums sums = sums_of(sound.values);
    if (!std::isfinite(sums.squares)) return not_finite("normalize_audio");
    const auto count = static_cast<double>(sound.values.size());
    if (level_ == Level::kStandard) {
      standardize(sound.values, sums.sum / count);
      return {};
    }
    const double level =
        level_ == Level::kPeak ? static_cast<double>(sums.peak) : std::sqrt(sums.squares / count);
    if (level == 0) return {};  // silence stays silence
    constexpr double kMost = std::numeric_limits<float>::max();
    scale(sound.values, static_cast<float>(std::min(target_ / level, kMost)));
    return {};
  }

 private:
  static void standardize(std::span<float> samples, double mean) {
    double squares = 0;
    for (const float sample : samples) squares += (sample - mean) * (sample - mean);
    const double variance = squares / static_cast<double>(samples.size());
    const double factor = 1 / std::sqrt(variance + 1e-7);
    for (float& sample : samples) sample = static_cast<float>((sample - mean) * factor);
  }

  Level level_;
  double target_;
};

class NormalizeAudio final : public AudioOp {
 public:
  NormalizeAudio(std::vector<std::string> fields, Level level, double target_db)
      : AudioOp(std::move(fields)), level_(level), target_db_(target_db) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_samples(in, "normalize_audio"));
    return in;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<NormalizeStep>(level_, target_db_);
  }

 private:
  Level level_;
  double target_db_;
};

Result<std::unique_ptr<Op>> make_mix_channels(const Params& params) {
  return std::make_unique<MixChannels>(fields_of(params));
}

Result<std::unique_ptr<Op>> make_gain(const Params& params) {
  SPDLD_ASSIGN(const Interval gain_db, interval_of(params, "gain", "gain_db"));
  return std::make_unique<Gain>(fields_of(params), gain_db);
}

Result<std::unique_ptr<Op>> make_normalize_audio(const Params& params) {
  const auto& mode = params.get<std::string>("mode");
  const Level level = mode == "peak"  ? Level::kPeak
                      : mode == "rms" ? Level::kRms
                                      : Level::kStandard;
  if (level == Level::kStandard && params.has("target_db"))
    return error(Code::kInvalidArgument,
                 "normalize_audio: target_db is of the modes peak and rms; 'mode: standard' always "
                 "has the variance 1: leave target_db out");
  const double target_db = params.has("target_db") ? params.get<double>("target_db")
                           : level == Level::kRms  ? -20
                                                   : 0;
  return std::make_unique<NormalizeAudio>(fields_of(params), level, target_db);
}

}  // namespace

OpInfo mix_channels_op() {
  return {.name = "mix_channels",
          .doc = "Makes one channel, the mean of all.",
          .params = {sound_fields_param()},
          .make = make_mix_channels};
}

OpInfo gain_op() {
  return {.name = "gain",
          .doc = "Makes the sound louder or softer, as torchaudio.functional.gain does.",
          .params = {{.name = "gain_db",
                      .type = ParamType::kFloatList,
                      .doc = "By how many decibels: one number, or [low, high], between which each "
                             "sample draws.",
                      .default_value = std::vector<double>{1.0},
                      .min = -kMostDb,
                      .max = kMostDb,
                      .min_items = 1,
                      .max_items = 2,
                      .scalar_ok = true},
                     sound_fields_param()},
          .make = make_gain};
}

OpInfo normalize_audio_op() {
  return {.name = "normalize_audio",
          .doc =
              "Brings every sound to one level, by one factor for all its channels; silence "
              "stays silence.",
          .params = {{.name = "mode",
                      .type = ParamType::kString,
                      .doc = "peak: the largest magnitude becomes target_db; rms: the root of the "
                             "mean square does; standard: mean 0 and variance 1, as wav2vec 2.0's "
                             "feature extractor has it: (x - mean) / sqrt(variance + 1e-7).",
                      .default_value = std::string("peak"),
                      .choices = {"peak", "rms", "standard"}},
                     {.name = "target_db",
                      .type = ParamType::kFloat,
                      .doc = "Decibels of full scale, which is 1; not given: 0 for peak, -20 for "
                             "rms.",
                      .min = -kMostDb,
                      .max = kMostDb,
                      .nullable = true},
                     sound_fields_param()},
          .make = make_normalize_audio};
}

}  // namespace spdld::transform

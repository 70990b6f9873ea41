// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/spectrum_ops.h"

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "op/audio.h"
#include "transform/params/audio_params.h"
#include "transform/params/size_params.h"
#include "transform/sound/spectra.h"
#include "transform/sound/spectrum_kernels.h"
#include "transform/sound/spectrum_params.h"

namespace spdld::transform {
namespace {

constexpr double kLn10 = 2.302585092994046;

// The decibels of powers, or of magnitudes.
LogScale decibels(bool magnitude) {
  return {.factor = static_cast<float>((magnitude ? 20 : 10) / kLn10), .add = 0, .floor = 1e-10F};
}

class SpectrumStep final : public AudioStep {
 public:
  explicit SpectrumStep(Spectra spectra) : spectra_(std::move(spectra)) {}

  Status run(Sound& sound, Sound& scratch, KeyedRng) override {
    const Result<float> largest = spectra_.run(sound, scratch);
    return largest ? Status() : largest.error();
  }

 private:
  Spectra spectra_;
};

class Spectrogram final : public AudioOp {
 public:
  Spectrogram(std::vector<std::string> fields, const SpectrogramParams& params)
      : AudioOp(std::move(fields)), params_(params) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_samples(in, "spectrogram"));
    return spectrum_format(params_, in, params_.n_fft / 2 + 1, 0, "spectrogram");
  }
  std::uint64_t step_bytes(const AudioFormat&) const override { return Spectra::bytes(params_, 0); }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<SpectrumStep>(Spectra(params_, spectrum_plan(params_), "spectrogram"));
  }

 private:
  SpectrogramParams params_;
};

class MelSpectrogram final : public AudioOp {
 public:
  MelSpectrogram(std::vector<std::string> fields, const SpectrogramParams& params,
                 const MelOptions& mels)
      : AudioOp(std::move(fields)), params_(params), mels_(mels) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_rate(in, kName));
    const auto mels = mel_params_at(mels_, in.sample_rate, kName);
    if (!mels) return tl::unexpected(mels.error());
    return spectrum_format(params_, in, mels_.n_mels, 0, kName);
  }
  std::uint64_t step_bytes(const AudioFormat&) const override {
    return Spectra::bytes(params_, mels_.n_mels);
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat& in) const override {
    SpectrumPlan plan = spectrum_plan(params_);
    add_bands(plan, *mel_params_at(mels_, in.sample_rate, kName));
    return std::make_unique<SpectrumStep>(Spectra(params_, std::move(plan), kName));
  }

 private:
  static constexpr char kName[] = "mel_spectrogram";

  SpectrogramParams params_;
  MelOptions mels_;
};

class DecibelStep final : public AudioStep {
 public:
  DecibelStep(bool magnitude, std::optional<double> top_db)
      : scale_(decibels(magnitude)), top_db_(top_db) {}

  Status run(Sound& sound, Sound&, KeyedRng) override {
    std::vector<float>& values = sound.values;
    const float largest = log_values(scale_, values.data(), values.size(), -1e30F);
    if (top_db_)
      floor_values(values.data(), values.size(), largest - static_cast<float>(*top_db_), 0, 1);
    return {};
  }

 private:
  LogScale scale_;
  std::optional<double> top_db_;
};

class AmplitudeToDb final : public AudioOp {
 public:
  AmplitudeToDb(std::vector<std::string> fields, bool magnitude, std::optional<double> top_db)
      : AudioOp(std::move(fields)), magnitude_(magnitude), top_db_(top_db) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    if (in.is_spectrum()) return in;
    return error(Code::kInvalidArgument,
                 "amplitude_to_db: it works on spectra; put 'spectrogram' or 'mel_spectrogram' "
                 "before it");
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<DecibelStep>(magnitude_, top_db_);
  }

 private:
  bool magnitude_;
  std::optional<double> top_db_;
};

// Whisper's own recipe: whisper.log_mel_spectrogram.
constexpr int kWhisperRate = 16000;
constexpr SpectrogramParams kWhisperFrames{.n_fft = 400, .win_length = 400, .hop_length = 160};
constexpr std::int64_t kWhisperSkipped = 1;  // the last frame

class LogMelStep final : public AudioStep {
 public:
  explicit LogMelStep(Spectra spectra) : spectra_(std::move(spectra)) {}

  Status run(Sound& sound, Sound& scratch, KeyedRng) override {
    SPDLD_ASSIGN(const float largest, spectra_.run(sound, scratch));
    floor_values(sound.values.data(), sound.values.size(), largest - 8, 4, 0.25F);
    return {};
  }

 private:
  Spectra spectra_;
};

class LogMel final : public AudioOp {
 public:
  LogMel(std::vector<std::string> fields, int n_mels)
      : AudioOp(std::move(fields)), n_mels_(n_mels) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_rate(in, "log_mel"));
    if (in.sample_rate != kWhisperRate)
      return error(Code::kInvalidArgument,
                   "log_mel: Whisper's spectra are of sound at 16000 Hz, "
                   "and this is at " +
                       std::to_string(in.sample_rate) +
                       "; write 'decode_audio: {sample_rate: 16000}'");
    return spectrum_format(kWhisperFrames, in, n_mels_, kWhisperSkipped, "log_mel");
  }
  std::uint64_t step_bytes(const AudioFormat&) const override {
    return Spectra::bytes(kWhisperFrames, n_mels_);
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    SpectrumPlan plan = spectrum_plan(kWhisperFrames);
    add_bands(plan, {.sample_rate = kWhisperRate,
                     .f_min = 0,
                     .f_max = kWhisperRate / 2.0,
                     .n_mels = n_mels_,
                     .slaney_norm = true,
                     .scale = MelScale::kSlaney});
    plan.log = true;
    plan.log_scale = {.factor = static_cast<float>(1 / kLn10), .add = 0, .floor = 1e-10F};
    return std::make_unique<LogMelStep>(
        Spectra(kWhisperFrames, std::move(plan), "log_mel", kWhisperSkipped));
  }

 private:
  int n_mels_;
};

Result<std::unique_ptr<Op>> make_spectrogram(const Params& params) {
  SPDLD_ASSIGN(const SpectrogramParams frames, spectrogram_of(params, "spectrogram"));
  return std::make_unique<Spectrogram>(fields_of(params), frames);
}

Result<std::unique_ptr<Op>> make_mel_spectrogram(const Params& params) {
  SPDLD_ASSIGN(const SpectrogramParams frames, spectrogram_of(params, "mel_spectrogram"));
  return std::make_unique<MelSpectrogram>(fields_of(params), frames, mel_options_of(params));
}

Result<std::unique_ptr<Op>> make_amplitude_to_db(const Params& params) {
  std::optional<double> top_db;
  if (params.has("top_db")) top_db = params.get<double>("top_db");
  return std::make_unique<AmplitudeToDb>(fields_of(params),
                                         params.get<std::string>("stype") == "magnitude", top_db);
}

Result<std::unique_ptr<Op>> make_log_mel(const Params& params) {
  const std::int64_t n_mels = params.get<std::int64_t>("n_mels");
  if (n_mels != 80 && n_mels != 128)
    return error(Code::kInvalidArgument,
                 "log_mel: n_mels must be 80, or 128 for large-v3 and later, but is " +
                     std::to_string(n_mels) +
                     "; other spectra are made by 'mel_spectrogram' and 'amplitude_to_db'");
  return std::make_unique<LogMel>(fields_of(params), static_cast<int>(n_mels));
}

}  // namespace

OpInfo spectrogram_op() {
  std::vector<ParamInfo> params = spectrogram_params();
  params.push_back(sound_fields_param());
  return {.name = "spectrogram",
          .doc =
              "Makes the spectrum of each frame of the sound, as torchaudio.transforms."
              "Spectrogram does: [channels, n_fft / 2 + 1, frames].",
          .params = std::move(params),
          .make = make_spectrogram};
}

OpInfo mel_spectrogram_op() {
  std::vector<ParamInfo> params = spectrogram_params();
  for (ParamInfo& param : mel_params()) params.push_back(std::move(param));
  params.push_back(sound_fields_param());
  return {.name = "mel_spectrogram",
          .doc =
              "Makes the mel spectrum of each frame of the sound, as torchaudio.transforms."
              "MelSpectrogram does: [channels, n_mels, frames]. The sample rate is the sound's.",
          .params = std::move(params),
          .make = make_mel_spectrogram};
}

OpInfo amplitude_to_db_op() {
  return {
      .name = "amplitude_to_db",
      .doc = "Turns a spectrum into decibels, as torchaudio.transforms.AmplitudeToDB does.",
      .params = {{.name = "stype",
                  .type = ParamType::kString,
                  .doc = "What the spectrum holds: squares (power: 2) or magnitudes (power: 1).",
                  .default_value = std::string("power"),
                  .choices = {"power", "magnitude"}},
                 {.name = "top_db",
                  .type = ParamType::kFloat,
                  .doc = "What lies further below the sample's largest value is raised to this "
                         "distance; not given: nothing is.",
                  .min = 0,
                  .max = 1000,
                  .nullable = true},
                 sound_fields_param()},
      .make = make_amplitude_to_db};
}

OpInfo log_mel_op() {
  return {.name = "log_mel",
          .doc = "Makes the spectra that a model was trained on: [channels, n_mels, frames].",
          .params = {{.name = "preset",
                      .type = ParamType::kString,
                      .doc = "whisper: whisper.log_mel_spectrogram, a frame for each 160 samples "
                             "at 16000 Hz.",
                      .default_value = std::string("whisper"),
                      .choices = {"whisper"}},
                     {.name = "n_mels",
                      .type = ParamType::kInt,
                      .doc = "How many bands there are: 80, or 128 for large-v3 and later.",
                      .default_value = std::int64_t{80},
                      .min = 80,
                      .max = 128},
                     sound_fields_param()},
          .make = make_log_mel};
}

}  // namespace spdld::transform

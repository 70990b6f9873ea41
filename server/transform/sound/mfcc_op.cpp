// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/audio.h"
#include "transform/params/audio_params.h"
#include "transform/params/size_params.h"
#include "transform/sound/spectra.h"
#include "transform/sound/spectrum_kernels.h"
#include "transform/sound/spectrum_ops.h"
#include "transform/sound/spectrum_params.h"

namespace spdld::transform {
namespace {

constexpr float kTopDb = 80;  // as torchaudio.transforms.MFCC has it

class MfccStep final : public AudioStep {
 public:
  MfccStep(Spectra spectra, int n_mels, int n_mfcc, bool ortho, bool log_mels)
      : spectra_(std::move(spectra)),
        n_mels_(n_mels),
        n_mfcc_(n_mfcc),
        log_mels_(log_mels),
        matrix_(cosine_transform(n_mfcc, n_mels, ortho)) {}

  Status run(Sound& sound, Sound& scratch, KeyedRng) override {
    SPDLD_ASSIGN(const float largest, spectra_.run(sound, scratch));
    if (!log_mels_) floor_values(sound.values.data(), sound.values.size(), largest - kTopDb, 0, 1);
    SPDLD_TRY(renew(scratch, sound.channels, n_mfcc_, sound.length));
    scratch.sample_rate = sound.sample_rate;
    for (int c = 0; c < sound.channels; ++c)
      multiply_rows(matrix_.data(), static_cast<std::size_t>(n_mfcc_),
                    static_cast<std::size_t>(n_mels_), sound.channel(c).data(),
                    scratch.channel(c).data(), static_cast<std::size_t>(sound.length));
    std::swap(sound, scratch);
    return {};
  }

 private:
  Spectra spectra_;
  int n_mels_;
  int n_mfcc_;
  bool log_mels_;
  std::vector<float> matrix_;
};

class Mfcc final : public AudioOp {
 public:
  struct Options {
    SpectrogramParams frames;
    MelOptions mels;
    int n_mfcc = 40;
    bool ortho = true;
    bool log_mels = false;
  };

  Mfcc(std::vector<std::string> fields, const Options& options)
      : AudioOp(std::move(fields)), options_(options) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    SPDLD_TRY(need_rate(in, "mfcc"));
    const auto mels = mel_params_at(options_.mels, in.sample_rate, "mfcc");
    if (!mels) return tl::unexpected(mels.error());
    return spectrum_format(options_.frames, in, options_.n_mfcc, 0, "mfcc");
  }

  // Between the sound and its coefficients there is its mel spectrum.
  std::uint64_t step_bytes(const AudioFormat& in) const override {
    const auto mels = static_cast<std::uint64_t>(options_.mels.n_mels);
    const std::uint64_t matrix = mels * static_cast<std::uint64_t>(options_.n_mfcc) * sizeof(float);
    const auto spectrum = spectrum_format(options_.frames, in, options_.mels.n_mels, 0, "mfcc");
    return Spectra::bytes(options_.frames, options_.mels.n_mels) + matrix +
           (spectrum ? spectrum->most_bytes() : 0);
  }

  std::unique_ptr<AudioStep> make_step(const AudioFormat& in) const override {
    SpectrumPlan plan = spectrum_plan(options_.frames);
    add_bands(plan, *mel_params_at(options_.mels, in.sample_rate, "mfcc"));
    plan.log = true;
    // Natural logarithms, or decibels of what the spectrum holds as if it were powers.
    plan.log_scale = options_.log_mels
                         ? LogScale{.factor = 1, .add = 1e-6F, .floor = 1e-10F}
                         : LogScale{.factor = 4.342944819F, .add = 0, .floor = 1e-10F};
    return std::make_unique<MfccStep>(Spectra(options_.frames, std::move(plan), "mfcc"),
                                      options_.mels.n_mels, options_.n_mfcc, options_.ortho,
                                      options_.log_mels);
  }

 private:
  Options options_;
};

Result<std::unique_ptr<Op>> make_mfcc(const Params& params) {
  Mfcc::Options options;
  SPDLD_ASSIGN(options.frames, spectrogram_of(params, "mfcc"));
  options.mels = mel_options_of(params);
  options.n_mfcc = static_cast<int>(params.get<std::int64_t>("n_mfcc"));
  if (options.n_mfcc > options.mels.n_mels)
    return error(Code::kInvalidArgument,
                 "mfcc: n_mfcc is " + std::to_string(options.n_mfcc) + ", more than the " +
                     std::to_string(options.mels.n_mels) +
                     " bands that n_mels asks for; raise n_mels or lower n_mfcc");
  options.ortho = params.get<std::string>("dct_norm") == "ortho";
  options.log_mels = params.get<bool>("log_mels");
  return std::make_unique<Mfcc>(fields_of(params), options);
}

}  // namespace

OpInfo mfcc_op() {
  std::vector<ParamInfo> params = {
      {.name = "n_mfcc",
       .type = ParamType::kInt,
       .doc = "How many coefficients there are; at most n_mels.",
       .default_value = std::int64_t{40},
       .min = 1,
       .max = 4096},
      {.name = "dct_norm",
       .type = ParamType::kString,
       .doc = "How the cosine transform, of type 2, is scaled: torchaudio's 'norm', where none is "
              "its None.",
       .default_value = std::string("ortho"),
       .choices = {"ortho", "none"}},
      {.name = "log_mels",
       .type = ParamType::kBool,
       .doc = "Whether logarithms of the mel spectrum are transformed, instead of decibels of "
              "which those more than 80 below the largest are raised.",
       .default_value = false}};
  for (ParamInfo& param : spectrogram_params()) params.push_back(std::move(param));
  for (ParamInfo& param : mel_params()) params.push_back(std::move(param));
  params.push_back(sound_fields_param());
  return {.name = "mfcc",
          .doc =
              "Makes cepstral coefficients of mel spectra, as torchaudio.transforms.MFCC does: "
              "[channels, n_mfcc, frames]. What is melkwargs there are parameters here.",
          .params = std::move(params),
          .make = make_mfcc};
}

}  // namespace spdld::transform

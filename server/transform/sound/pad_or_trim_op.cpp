// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/pad_or_trim_op.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/memory/no_memory.h"
#include "op/audio.h"
#include "transform/params/audio_params.h"
#include "transform/params/size_params.h"

namespace spdld::transform {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;

enum class Crop { kStart, kCenter, kRandom };

class PadOrTrimStep final : public AudioStep {
 public:
  PadOrTrimStep(std::int64_t samples, Crop crop) : samples_(samples), crop_(crop) {}

  Status run(Sound& sound, Sound&, KeyedRng rng) override {
    const std::int64_t before = sound.length;
    if (before > samples_) {
      const std::int64_t begin = first_kept(before - samples_, rng);
      float* const values = sound.values.data();
      for (int c = 0; c < sound.channels; ++c)
        std::copy_n(values + c * before + begin, samples_, values + c * samples_);
      sound.reshape(sound.channels, 0, samples_);
      return {};
    }
    try {
      sound.reshape(sound.channels, 0, samples_);
    } catch (const std::exception&) {  // std::bad_alloc, std::length_error
      return no_memory("the samples of a sound");
    }
    float* const values = sound.values.data();
    for (int c = sound.channels - 1; c >= 0; --c) {
      float* const row = values + c * samples_;
      std::copy_backward(values + c * before, values + (c + 1) * before, row + before);
      std::fill(row + before, row + samples_, 0.0F);
    }
    return {};
  }

 private:
  std::int64_t first_kept(std::int64_t excess, KeyedRng& rng) const {
    if (crop_ == Crop::kStart) return 0;
    if (crop_ == Crop::kCenter) return excess / 2;
    return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(excess) + 1));
  }

  std::int64_t samples_;
  Crop crop_;
};

class PadOrTrim final : public AudioOp {
 public:
  // One of `seconds` and `samples` is given.
  PadOrTrim(std::vector<std::string> fields, std::optional<double> seconds, std::int64_t samples,
            Crop crop)
      : AudioOp(std::move(fields)), seconds_(seconds), samples_(samples), crop_(crop) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    if (!seconds_) {
      SPDLD_TRY(need_samples(in, "pad_or_trim"));
    } else {
      SPDLD_TRY(need_rate(in, "pad_or_trim"));
    }
    const std::int64_t samples = samples_at(in.sample_rate);
    if (samples < 1 || samples > kMostSamples)
      return error(Code::kInvalidArgument,
                   "pad_or_trim: seconds must be at least one sample and at most " +
                       std::to_string(kMostSamples) + " samples, but at " +
                       std::to_string(in.sample_rate) + " Hz are " + std::to_string(samples));
    AudioFormat out = in;
    out.length = out.max_length = samples;
    return out;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat& in) const override {
    return std::make_unique<PadOrTrimStep>(samples_at(in.sample_rate), crop_);
  }

 private:
  std::int64_t samples_at(int sample_rate) const {
    return seconds_ ? std::llround(*seconds_ * sample_rate) : samples_;
  }

  std::optional<double> seconds_;
  std::int64_t samples_;
  Crop crop_;
};

Result<std::unique_ptr<Op>> make_pad_or_trim(const Params& params) {
  if (params.has("seconds") == params.has("samples"))
    return error(Code::kInvalidArgument,
                 "pad_or_trim: give the length as one of 'seconds' and 'samples'");
  const auto& name = params.get<std::string>("crop");
  const Crop crop = name == "start"    ? Crop::kStart
                    : name == "center" ? Crop::kCenter
                                       : Crop::kRandom;
  std::optional<double> seconds;
  std::int64_t samples = 0;
  if (params.has("seconds")) {
    seconds = params.get<double>("seconds");
  } else {
    samples = params.get<std::int64_t>("samples");
  }
  return std::make_unique<PadOrTrim>(fields_of(params), seconds, samples, crop);
}

}  // namespace

OpInfo pad_or_trim_op() {
  return {.name = "pad_or_trim",
          .doc =
              "Gives every sound one length, as whisper.pad_or_trim does: what is longer is "
              "cut, and what is shorter gets zeros at its end.",
          .params = {{.name = "seconds",
                      .type = ParamType::kFloat,
                      .doc = "The length, rounded to whole samples.",
                      .min = 0,
                      .max = 86400,
                      .nullable = true},
                     {.name = "samples",
                      .type = ParamType::kInt,
                      .doc = "The length, instead of seconds.",
                      .min = 1,
                      .max = static_cast<double>(kMostSamples),
                      .nullable = true},
                     {.name = "crop",
                      .type = ParamType::kString,
                      .doc = "Which part of a longer sound is kept; random: each sample draws.",
                      .default_value = std::string("start"),
                      .choices = {"start", "center", "random"}},
                     sound_fields_param()},
          .make = make_pad_or_trim};
}

}  // namespace spdld::transform

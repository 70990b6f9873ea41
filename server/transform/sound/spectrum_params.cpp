// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/spectrum_params.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace spdld::transform {
namespace {

constexpr int kMostFrameSamples = 65536;  // of a frame, a window or a step between frames
constexpr int kMostPad = 1 << 20;
constexpr int kMostMels = 4096;

int integer(const Params& params, const std::string& name) {
  return static_cast<int>(params.get<std::int64_t>(name));
}

// The nearest length that has a plan, a smaller one if there are two.
int nearest_length(int length) {
  for (int distance = 1;; ++distance) {
    for (const int near : {length - distance, length + distance}) {
      if (has_fourier_plan(near)) return near;
    }
  }
}

}  // namespace

std::vector<ParamInfo> spectrogram_params() {
  return {
      {.name = "n_fft",
       .type = ParamType::kInt,
       .doc = "Samples of a frame: an even number without a prime factor above 31.",
       .default_value = std::int64_t{400},
       .min = 2,
       .max = kMostFrameSamples},
      {.name = "win_length",
       .type = ParamType::kInt,
       .doc = "Samples of the Hann window, in the middle of the frame; not given: n_fft.",
       .min = 1,
       .max = kMostFrameSamples,
       .nullable = true},
      {.name = "hop_length",
       .type = ParamType::kInt,
       .doc = "Samples from one frame to the next; not given: half of win_length.",
       .min = 1,
       .max = kMostFrameSamples,
       .nullable = true},
      {.name = "pad",
       .type = ParamType::kInt,
       .doc = "Zeros put before and behind the sound.",
       .default_value = std::int64_t{0},
       .min = 0,
       .max = kMostPad},
      {.name = "power",
       .type = ParamType::kFloat,
       .doc = "1 for magnitudes, 2 for their squares.",
       .default_value = 2.0,
       .min = 1,
       .max = 2},
      {.name = "normalized",
       .type = ParamType::kBool,
       .doc = "Whether magnitudes are divided by the root of the window's sum of squares.",
       .default_value = false},
      {.name = "center",
       .type = ParamType::kBool,
       .doc = "Whether frame t has its middle, not its begin, at sample t * hop_length.",
       .default_value = true},
      {.name = "pad_mode",
       .type = ParamType::kString,
       .doc = "What frames see beyond the ends, with center: true: the sound mirrored, zeros, or "
              "its first and last sample.",
       .default_value = std::string("reflect"),
       .choices = {"reflect", "constant", "replicate"}}};
}

Result<SpectrogramParams> spectrogram_of(const Params& params, const std::string& op) {
  SpectrogramParams found;
  found.n_fft = integer(params, "n_fft");
  if (!has_fourier_plan(found.n_fft))
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: n_fft must be an even number without a prime factor above {}, and "
                    "{} is none; the nearest one is {}",
                    op, kMaxRadix, found.n_fft, nearest_length(found.n_fft)));
  found.win_length = params.has("win_length") ? integer(params, "win_length") : found.n_fft;
  if (found.win_length > found.n_fft)
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: win_length is {}, but a frame has n_fft = {} samples; raise n_fft "
                    "or lower win_length",
                    op, found.win_length, found.n_fft));
  found.hop_length =
      params.has("hop_length") ? integer(params, "hop_length") : std::max(found.win_length / 2, 1);
  found.pad = integer(params, "pad");
  const double power = params.get<double>("power");
  if (power != 1 && power != 2)
    return error(Code::kInvalidArgument,
                 fmt::format("{}: power must be 1 for magnitudes or 2 for their squares, but is {}",
                             op, power));
  found.magnitude = power == 1;
  found.normalized = params.get<bool>("normalized");
  found.center = params.get<bool>("center");
  const auto& mode = params.get<std::string>("pad_mode");
  found.pad_mode = mode == "reflect"    ? Padding::kReflect
                   : mode == "constant" ? Padding::kConstant
                                        : Padding::kReplicate;
  return found;
}

std::vector<ParamInfo> mel_params() {
  return {{.name = "n_mels",
           .type = ParamType::kInt,
           .doc = "How many bands there are.",
           .default_value = std::int64_t{128},
           .min = 1,
           .max = kMostMels},
          {.name = "f_min",
           .type = ParamType::kFloat,
           .doc = "Hertz at which the lowest band begins.",
           .default_value = 0.0,
           .min = 0,
           .max = 1e6},
          {.name = "f_max",
           .type = ParamType::kFloat,
           .doc = "Hertz at which the highest band ends; not given: half the sample rate.",
           .min = 0,
           .max = 1e6,
           .nullable = true},
          {.name = "norm",
           .type = ParamType::kString,
           .doc = "slaney: each band's weights are divided by half its width in hertz; not given: "
                  "they reach up to 1.",
           .choices = {"slaney"},
           .nullable = true},
          {.name = "mel_scale",
           .type = ParamType::kString,
           .doc = "The formula of the mel scale.",
           .default_value = std::string("htk"),
           .choices = {"htk", "slaney"}}};
}

MelOptions mel_options_of(const Params& params) {
  MelOptions found;
  found.n_mels = integer(params, "n_mels");
  found.f_min = params.get<double>("f_min");
  if (params.has("f_max")) found.f_max = params.get<double>("f_max");
  found.slaney_norm = params.has("norm");
  found.scale = params.get<std::string>("mel_scale") == "htk" ? MelScale::kHtk : MelScale::kSlaney;
  return found;
}

Result<MelParams> mel_params_at(const MelOptions& options, int sample_rate, const std::string& op) {
  MelParams found{.sample_rate = sample_rate,
                  .f_min = options.f_min,
                  .f_max = options.f_max.value_or(sample_rate / 2),
                  .n_mels = options.n_mels,
                  .slaney_norm = options.slaney_norm,
                  .scale = options.scale};
  if (found.f_max > sample_rate / 2.0)
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: f_max is {} Hz, but sound at {} Hz has nothing above {} Hz; lower "
                    "f_max, or raise decode_audio's sample_rate",
                    op, found.f_max, sample_rate, sample_rate / 2.0));
  if (found.f_min >= found.f_max)
    return error(Code::kInvalidArgument,
                 fmt::format("{}: f_min is {} Hz and f_max {} Hz; f_min must be less", op,
                             found.f_min, found.f_max));
  return found;
}

}  // namespace spdld::transform

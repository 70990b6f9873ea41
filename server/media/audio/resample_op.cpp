// SPDX-License-Identifier: Apache-2.0
#include "media/audio/resample_op.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "media/audio/audio_options.h"
#include "media/audio/resampler.h"
#include "op/audio.h"

namespace spdld::media {
namespace {

class ResampleStep final : public AudioStep {
 public:
  ResampleStep(int sample_rate, const ResampleOptions& options)
      : sample_rate_(sample_rate), resampler_(options) {}

  Status run(Sound& sound, Sound& scratch, KeyedRng) override {
    if (sound.sample_rate == sample_rate_) return {};
    SPDLD_TRY(
        resampler_.run(sound, Channels{sound.channels, 0}, sample_rate_, sound.channels, scratch));
    std::swap(sound, scratch);
    return {};
  }

 private:
  const int sample_rate_;
  Resampler resampler_;
};

class Resample final : public AudioOp {
 public:
  Resample(std::vector<std::string> fields, int sample_rate, const ResampleOptions& options)
      : AudioOp(std::move(fields)), sample_rate_(sample_rate), options_(options) {}

  Result<AudioFormat> output(const AudioFormat& in) const override {
    if (in.is_spectrum())
      return error(Code::kInvalidArgument,
                   "'resample' works on samples, and what stands before it makes a spectrum of "
                   "them: put 'resample' before that");
    AudioFormat out = in;
    out.sample_rate = sample_rate_;
    if (in.sample_rate == sample_rate_) return out;
    out.length = out.max_length = -1;
    if (in.sample_rate == 0) return out;
    if (in.max_length >= 0)
      out.max_length = Resampler::most_length(in.max_length, in.sample_rate, sample_rate_);
    if (in.length >= 0) {
      SPDLD_ASSIGN(out.length,
                   Resampler(options_).length_of(in.length, in.sample_rate, sample_rate_));
      out.max_length = out.length;
    }
    return out;
  }

  std::uint64_t step_bytes(const AudioFormat& in) const override {
    if (in.sample_rate == 0) return 0;
    return Resampler(options_).filter_bytes(in.sample_rate, sample_rate_);
  }

  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    return std::make_unique<ResampleStep>(sample_rate_, options_);
  }

 private:
  const int sample_rate_;
  const ResampleOptions options_;
};

SwrFilterType filter_type(const std::string& name) {
  if (name == "cubic") return SWR_FILTER_TYPE_CUBIC;
  if (name == "blackman_nuttall") return SWR_FILTER_TYPE_BLACKMAN_NUTTALL;
  return SWR_FILTER_TYPE_KAISER;
}

Result<std::unique_ptr<Op>> make_resample(const Params& params) {
  std::vector<std::string> fields;
  if (params.has("fields")) fields = params.get<std::vector<std::string>>("fields");
  const ResampleOptions options{
      .filter_size = static_cast<int>(params.get<std::int64_t>("filter_size")),
      .phase_shift = static_cast<int>(params.get<std::int64_t>("phase_shift")),
      .linear_interp = params.get<bool>("linear_interp"),
      .exact_rational = params.get<bool>("exact_rational"),
      .cutoff = params.get<double>("cutoff"),
      .filter_type = filter_type(params.get<std::string>("filter_type")),
      .kaiser_beta = params.get<double>("kaiser_beta")};
  return std::make_unique<Resample>(
      std::move(fields), static_cast<int>(params.get<std::int64_t>("sample_rate")), options);
}

}  // namespace

OpInfo resample_op() {
  const ResampleOptions defaults;
  return {.name = "resample",
          .doc =
              "Gives sound another sample rate, through FFmpeg's swresample; its parameters have "
              "the names and defaults that they have there.",
          .params = {{.name = "sample_rate",
                      .type = ParamType::kInt,
                      .doc = "what all sound has then, in Hz",
                      .min = kLeastRate,
                      .max = kMostRate},
                     {.name = "filter_size",
                      .type = ParamType::kInt,
                      .doc = "taps of the filter, at the lower of the two rates",
                      .default_value = std::int64_t{defaults.filter_size},
                      .min = 1,
                      .max = 256},
                     {.name = "phase_shift",
                      .type = ParamType::kInt,
                      .doc = "log2 of the number of the filter's phases",
                      .default_value = std::int64_t{defaults.phase_shift},
                      .min = 0,
                      .max = 14},
                     {.name = "linear_interp",
                      .type = ParamType::kBool,
                      .doc = "interpolate between phases where the rates need more of them",
                      .default_value = defaults.linear_interp},
                     {.name = "exact_rational",
                      .type = ParamType::kBool,
                      .doc = "use as many phases as the rates need, where these are fewer",
                      .default_value = defaults.exact_rational},
                     {.name = "cutoff",
                      .type = ParamType::kFloat,
                      .doc = "where the filter cuts off, as a share of the lower rate's Nyquist "
                             "frequency",
                      .default_value = defaults.cutoff,
                      .min = 0.01,
                      .max = 1},
                     {.name = "filter_type",
                      .type = ParamType::kString,
                      .doc = "the filter's window",
                      .default_value = std::string("kaiser"),
                      .choices = {"cubic", "blackman_nuttall", "kaiser"}},
                     {.name = "kaiser_beta",
                      .type = ParamType::kFloat,
                      .doc = "of the kaiser window",
                      .default_value = defaults.kaiser_beta,
                      .min = 2,
                      .max = 16},
                     {.name = "fields",
                      .type = ParamType::kStringList,
                      .doc = "the fields that it works on; not given: all sound that is decoded by "
                             "then",
                      .min_items = 1,
                      .scalar_ok = true,
                      .nullable = true}},
          .make = make_resample};
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/audio/decode_audio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "media/audio/audio_options.h"
#include "media/audio/audio_task.h"
#include "media/audio/resampler.h"
#include "op/op.h"

namespace spdld::media {
namespace {

std::optional<int> number_of(const Params& params, const std::string& name) {
  if (!params.has(name)) return std::nullopt;
  return static_cast<int>(params.get<std::int64_t>(name));
}

class DecodeAudio final : public Op {
 public:
  DecodeAudio(std::string field, AudioOptions options, std::optional<int> sample_rate,
              std::optional<int> channels)
      : Op({std::move(field)}),
        options_(std::move(options)),
        sample_rate_(sample_rate),
        channels_(channels) {}

  Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const override {
    auto encoded = table.encoded(fields().front(), key.name);
    if (!encoded) return std::move(encoded).error();
    Field& part = **encoded;
    if (part.clip && options_.stream.kind != StreamChoice::Kind::kBest)
      return {Code::kInvalidArgument, "'" + key.name + "': the field '" + part.name +
                                          "' is windows of a stream that the source has chosen: "
                                          "leave 'stream' out here, and name it "
                                          "under 'windows'"};
    if (part.clip && part.clip->is_whole && part.clip->max_seconds > options_.max_seconds)
      doubt = fmt::format(
          "the longest file lasts {:.10g} s, and sound of more than max_seconds, which is {:.10g}, "
          "is an error of its item: raise that, or leave such files out by 'max_seconds' of "
          "source.windows",
          part.clip->max_seconds, options_.max_seconds);
    auto task = std::make_unique<AudioTask>();
    task->request = table.request(part);
    task->options = options_;
    task->sample_rate = sample_rate_;
    task->channels = channels_;
    SPDLD_ASSIGN(task->decoded, format_of(part.clip));
    SPDLD_ASSIGN(std::vector<AudioFormat> kinds, kinds_of(part.clip));
    task->decoded.agree_on(kinds);
    task->is_bound_by_max_seconds =
        task->decoded.sample_rate > 0 &&
        task->decoded.max_length == most_samples(task->decoded.sample_rate);
    part.kind = Field::Kind::kDecoded;
    part.chain = std::make_unique<AudioChain>(std::move(task), std::move(kinds));
    return {};
  }

 private:
  // The form of the sound, as far as it is known before any is decoded.
  Result<AudioFormat> format_of(const std::optional<ClipShape>& clip) const {
    AudioFormat format;
    const int from = clip ? clip->sample_rate : 0;
    format.sample_rate = sample_rate_.value_or(from);
    format.channels = channels_.value_or(clip ? clip->channels : 0);
    if (format.sample_rate > 0) format.max_length = most_samples(format.sample_rate);
    if (!clip) return format;
    const auto bound = [&format](std::int64_t most) {
      format.max_length = format.max_length < 0 ? most : std::min(format.max_length, most);
    };
    const bool stays = !sample_rate_ || *sample_rate_ == from;
    if (stays) {
      if (clip->samples > 0) format.length = clip->samples;
      if (clip->max_samples > 0) bound(clip->max_samples);
    } else if (from > 0) {
      if (clip->max_samples > 0)
        bound(Resampler::most_length(clip->max_samples, from, *sample_rate_));
      if (clip->samples > 0) {
        SPDLD_ASSIGN(format.length,
                     Resampler(ResampleOptions{}).length_of(clip->samples, from, *sample_rate_));
      }
    } else if (clip->max_seconds > 0) {
      // Files of several rates.
      const double most = std::ceil(clip->max_seconds * *sample_rate_) + 2;  // as Resampler rounds
      bound(static_cast<std::int64_t>(most));
    }
    if (format.length >= 0) format.max_length = format.length;
    return format;
  }

  std::int64_t most_samples(int sample_rate) const {
    return options_.max_samples(sample_rate) + 2;  // as Resampler rounds
  }

  // The sounds of files of several rates, by their rates; empty: that is not known.
  Result<std::vector<AudioFormat>> kinds_of(const std::optional<ClipShape>& clip) const {
    std::vector<AudioFormat> kinds;
    if (!clip) return kinds;
    for (const ClipShape::OfRate& of_rate : clip->of_rates) {
      ClipShape one = *clip;
      one.sample_rate = of_rate.sample_rate;
      one.samples = one.max_samples = of_rate.samples;
      SPDLD_ASSIGN(AudioFormat format, format_of(one));
      kinds.push_back(format);
    }
    return kinds;
  }

  AudioOptions options_;
  std::optional<int> sample_rate_;
  std::optional<int> channels_;
};

Result<std::unique_ptr<Op>> make_decode_audio(const Params& params) {
  AudioOptions options;
  SPDLD_ASSIGN(options.stream, StreamChoice::parse(params.get<std::string>("stream")));
  options.max_seconds = params.get<double>("max_seconds");
  options.max_channels = static_cast<int>(params.get<std::int64_t>("max_channels"));
  return std::make_unique<DecodeAudio>(params.get<std::string>("field"), std::move(options),
                                       number_of(params, "sample_rate"),
                                       number_of(params, "channels"));
}

}  // namespace

OpInfo decode_audio_op() {
  const AudioOptions defaults;
  return {
      .name = "decode_audio",
      .doc =
          "Decodes sound to float32 of the shape [channels, samples]: wav, flac, mp3, AAC, Opus, "
          "Vorbis and what else docs/media.md lists, told apart by their content.",
      .params =
          {{.name = "field",
            .type = ParamType::kString,
            .doc = "the field whose bytes are sound",
            .default_value = std::string("audio")},
           {.name = "sample_rate",
            .type = ParamType::kInt,
            .doc = "files of another rate are resampled to it, with the defaults of 'resample'; "
                   "not given: each keeps its own",
            .min = kLeastRate,
            .max = kMostRate,
            .nullable = true},
           {.name = "channels",
            .type = ParamType::kInt,
            .doc = "files of another number of channels are mixed to it, by swresample's matrix; "
                   "not given: each keeps its own",
            .min = 1,
            .max = 8,
            .nullable = true},
           {.name = "stream",
            .type = ParamType::kString,
            .doc = "which stream of a file: best, which is the one with the most channels of those "
                   "that the file marks as its defaults, or else of all; a number, as ffprobe "
                   "numbers streams; or a language, such as eng",
            .default_value = std::string("best")},
           {.name = "max_seconds",
            .type = ParamType::kFloat,
            .doc = "sound that is longer is an error of the item",
            .default_value = defaults.max_seconds,
            .min = 0.001,
            .max = 1e6},
           {.name = "max_channels",
            .type = ParamType::kInt,
            .doc = "sound of more channels is an error of the item",
            .default_value = std::int64_t{defaults.max_channels},
            .min = 1,
            .max = 64}},
      .make = make_decode_audio};
}

}  // namespace spdld::media

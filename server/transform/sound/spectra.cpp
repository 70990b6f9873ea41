// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/spectra.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/text/counted.h"
#include "transform/params/audio_params.h"
#include "transform/sound/spectrum_kernels.h"

namespace spdld::transform {
namespace {

// How many samples are added on each side, zeros and then what pad_mode says.
std::int64_t margin(const SpectrogramParams& params) {
  return params.pad + (params.center ? params.n_fft / 2 : 0);
}

Status too_short(const std::string& op, std::int64_t length, std::int64_t least,
                 std::string_view why) {
  return {Code::kInvalidArgument,
          op + ": a sound of " + counted(static_cast<std::uint64_t>(length), "sample") +
              " is too short: " + std::string(why) + " needs at least " + std::to_string(least) +
              "; put 'pad_or_trim' before, or leave such items out"};
}

}  // namespace

Result<std::int64_t> frame_count(const SpectrogramParams& params, std::int64_t length,
                                 const std::string& op) {
  std::int64_t least = 0;
  std::string_view why;
  if (!params.center) {
    least = params.n_fft - 2 * std::int64_t{params.pad};
    why = "a frame (n_fft)";
  } else if (params.pad_mode == Padding::kReflect) {
    least = params.n_fft / 2 + 1 - 2 * std::int64_t{params.pad};
    why = "to pad by reflection";
  } else if (params.pad_mode == Padding::kReplicate && params.pad == 0) {
    least = 1;
    why = "to pad with the first and last sample";
  }
  if (length < least) return tl::unexpected(too_short(op, length, least, why));
  return 1 + (length + 2 * margin(params) - params.n_fft) / params.hop_length;
}

Result<AudioFormat> spectrum_format(const SpectrogramParams& params, const AudioFormat& in,
                                    int bins, std::int64_t skipped, const std::string& op) {
  AudioFormat out = in;
  out.bins = bins;
  if (in.length >= 0) {
    SPDLD_ASSIGN(const std::int64_t frames, frame_count(params, in.length, op));
    out.length = frames - skipped;
  }
  if (in.max_length >= 0) {
    SPDLD_ASSIGN(const std::int64_t frames, frame_count(params, in.max_length, op));
    out.max_length = frames - skipped;
  }
  return out;
}

std::uint64_t Spectra::bytes(const SpectrogramParams& params, int bands) {
  const auto frame = static_cast<std::uint64_t>(params.n_fft);
  const auto hop = static_cast<std::uint64_t>(params.hop_length);
  const auto rows = static_cast<std::uint64_t>(bands);
  // The kernels' scratch, the edge, the window, and roots, of which each pass has its own.
  constexpr std::uint64_t kRoots = 8;
  const std::uint64_t values = 2 * kMaxFrames * frame + (kMaxFrames - 1) * hop + kRoots * frame;
  // A bin counts in two bands at most, but for narrow ones, which have no more than one.
  return (values + (bands > 0 ? 2 * frame + rows : 0)) * sizeof(float) + rows * sizeof(Band);
}

Spectra::Spectra(const SpectrogramParams& params, SpectrumPlan plan, std::string op,
                 std::int64_t skipped)
    : params_(params),
      plan_(std::move(plan)),
      op_(std::move(op)),
      skipped_(skipped),
      scratch_((frame_scratch(plan_.fourier) + kMaxFrames - 1) / kMaxFrames),
      edge_((kMaxFrames - 1) * static_cast<std::size_t>(params.hop_length) +
            static_cast<std::size_t>(params.n_fft)) {}

const float* Spectra::samples_at(std::span<const float> samples, std::int64_t begin,
                                 std::int64_t count) {
  const auto size = static_cast<std::int64_t>(samples.size());
  if (begin >= 0 && begin + count <= size) return samples.data() + begin;
  // The sound with its `pad` zeros, at the ends of which pad_mode counts.
  const std::int64_t first = params_.center ? -params_.pad : std::numeric_limits<int>::min();
  const std::int64_t last =
      params_.center ? size + params_.pad - 1 : std::numeric_limits<std::int64_t>::max();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = begin + i;
    if (at < first || at > last) {
      switch (params_.pad_mode) {
        case Padding::kReflect: at = at < first ? 2 * first - at : 2 * last - at; break;
        case Padding::kReplicate: at = std::clamp(at, first, last); break;
        case Padding::kConstant: at = -1; break;
      }
    }
    edge_[static_cast<std::size_t>(i)] =
        at >= 0 && at < size ? samples[static_cast<std::size_t>(at)] : 0.0F;
  }
  return edge_.data();
}

Result<float> Spectra::run(Sound& sound, Sound& scratch) {
  SPDLD_ASSIGN(const std::int64_t all, frame_count(params_, sound.length, op_));
  const std::int64_t frames = all - skipped_;
  SPDLD_TRY(renew(scratch, sound.channels, plan_.rows(), frames));
  scratch.sample_rate = sound.sample_rate;
  const auto lanes = static_cast<std::int64_t>(frame_lanes());
  const std::int64_t hop = params_.hop_length;
  float largest = -std::numeric_limits<float>::infinity();
  for (int c = 0; c < sound.channels; ++c) {
    const std::span<const float> samples = std::as_const(sound).channel(c);
    float* const out = scratch.channel(c).data();
    for (std::int64_t frame = 0; frame < frames; frame += lanes) {
      const std::int64_t count = std::min(lanes, frames - frame);
      const float* const from =
          samples_at(samples, frame * hop - margin(params_), (count - 1) * hop + params_.n_fft);
      if (!transform_frames(plan_, from, static_cast<std::size_t>(hop),
                            static_cast<std::size_t>(count), scratch_.front().values, out + frame,
                            static_cast<std::size_t>(frames), largest))
        return tl::unexpected(not_finite(op_));
    }
  }
  std::swap(sound, scratch);
  return largest;
}

}  // namespace spdld::transform

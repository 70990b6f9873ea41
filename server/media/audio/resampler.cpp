// SPDX-License-Identifier: Apache-2.0
#include "media/audio/resampler.h"

extern "C" {
#include <libavutil/error.h>
#include <libavutil/opt.h>
}

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "base/text/counted.h"
#include "media/container/ffmpeg.h"

namespace spdld::media {
namespace {

constexpr std::size_t kMostContexts = 8;
constexpr double kMostFilterValues = 1 << 24;
// Of filters beside the one in use.
constexpr std::uint64_t kMostKeptBytes = std::uint64_t{8} << 20;

// So many samples go through swresample at once, and stay in the cache between its steps.
constexpr std::int64_t kSamplesAtOnce = 16384;

}  // namespace

double Resampler::filter_values(int from_rate, int to_rate) const {
  const double factor = std::min(1.0, to_rate * options_.cutoff / from_rate);
  double phases = 1 << options_.phase_shift;
  if (options_.exact_rational)
    phases = std::min(phases, static_cast<double>(to_rate) / std::gcd(from_rate, to_rate));
  return options_.filter_size / factor * phases;
}

std::uint64_t Resampler::own_filter_bytes(int from_rate, int to_rate) const {
  if (from_rate == to_rate) return 0;
  // A larger one is refused.
  const double values = std::min(filter_values(from_rate, to_rate), kMostFilterValues);
  return static_cast<std::uint64_t>(values) * sizeof(float);
}

std::uint64_t Resampler::kept_bytes() const {
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.context == nullptr ? 0 : entry.bytes;
  return bytes;
}

std::uint64_t Resampler::filter_bytes(int from_rate, int to_rate) const {
  return own_filter_bytes(from_rate, to_rate) + std::min(kept_bytes(), kMostKeptBytes);
}

Status Resampler::check_filter(int from_rate, int to_rate) const {
  if (filter_values(from_rate, to_rate) <= kMostFilterValues) return {};
  return {Code::kInvalidArgument, "the filter that resamples from " + std::to_string(from_rate) +
                                      " Hz to " + std::to_string(to_rate) +
                                      " would be too large: raise sample_rate, or lower "
                                      "filter_size"};
}

Status Resampler::open(Entry& entry) const {
  AVChannelLayout from = entry.from.layout();
  AVChannelLayout to = from;
  if (entry.channels != entry.from.count) av_channel_layout_default(&to, entry.channels);
  if (from.order == AV_CHANNEL_ORDER_UNSPEC && entry.channels != entry.from.count)
    return {Code::kInvalidArgument,
            "it has " + counted(static_cast<std::uint64_t>(entry.from.count), "channel") +
                ", which FFmpeg cannot mix to " + std::to_string(entry.channels) +
                ": leave out 'channels', or leave such files out"};
  if (Status fits = check_filter(entry.from_rate, entry.to_rate); !fits.ok()) return fits;
  SwrContext* context = nullptr;
  const int made = swr_alloc_set_opts2(&context, &to, AV_SAMPLE_FMT_FLTP, entry.to_rate, &from,
                                       AV_SAMPLE_FMT_FLTP, entry.from_rate, 0, nullptr);
  entry.context.reset(context);
  if (made < 0) return no_memory("a resampler");
  av_opt_set_int(context, "filter_size", options_.filter_size, 0);
  av_opt_set_int(context, "phase_shift", options_.phase_shift, 0);
  av_opt_set_int(context, "linear_interp", options_.linear_interp ? 1 : 0, 0);
  av_opt_set_int(context, "exact_rational", options_.exact_rational ? 1 : 0, 0);
  av_opt_set_double(context, "cutoff", options_.cutoff, 0);
  av_opt_set_int(context, "filter_type", options_.filter_type, 0);
  av_opt_set_double(context, "kaiser_beta", options_.kaiser_beta, 0);
  av_opt_set_double(context, "rematrix_maxval", 1, 0);
  return {};
}

Result<SwrContext*> Resampler::context_of(int from_rate, const Channels& from, int to_rate,
                                          int channels) {
  const auto fits = [&](const Entry& entry) {
    return entry.context != nullptr && entry.from_rate == from_rate && entry.to_rate == to_rate &&
           entry.from == from && entry.channels == channels;
  };
  auto found = std::find_if(entries_.begin(), entries_.end(), fits);
  if (found == entries_.end()) {
    if (entries_.size() < kMostContexts) entries_.emplace_back();
    found = entries_.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ = (next_ + 1) % kMostContexts;
    found->from_rate = from_rate;
    found->to_rate = to_rate;
    found->from = from;
    found->channels = channels;
    found->bytes = own_filter_bytes(from_rate, to_rate);
    found->context.reset();
    // The oldest go first.
    for (std::size_t i = 0; i < entries_.size() && kept_bytes() > kMostKeptBytes; ++i)
      entries_[(next_ + i) % entries_.size()].context.reset();
    if (Status opened = open(*found); !opened.ok()) {
      found->context.reset();
      return tl::unexpected<Status>(std::move(opened));
    }
  }
  FfmpegReports reports;
  // Also forgets the sound before; filters are kept.
  const int begun = swr_init(found->context.get());
  if (begun >= 0) return found->context.get();
  found->context.reset();
  if (begun == AVERROR(ENOMEM)) return tl::unexpected<Status>(no_memory("a resampler"));
  return error(Code::kInvalidArgument,
               "FFmpeg cannot make " + counted(static_cast<std::uint64_t>(channels), "channel") +
                   " at " + std::to_string(to_rate) + " Hz of " + std::to_string(from.count) +
                   " at " + std::to_string(from_rate) + ": " +
                   (reports.any() ? reports.first() : av_error_text(begun)));
}

Status Resampler::run(const Sound& in, const Channels& layout, int sample_rate, int channels,
                      Sound& out) {
  SPDLD_CHECK(in.bins == 0 && layout.count == in.channels);
  SPDLD_ASSIGN(SwrContext* const context,
               context_of(in.sample_rate, layout, sample_rate, channels));
  const std::int64_t most = most_length(in.length, in.sample_rate, sample_rate);
  out.renew(channels, 0, most);
  out.sample_rate = sample_rate;
  in_.resize(static_cast<std::size_t>(in.channels));
  out_.resize(static_cast<std::size_t>(channels));
  // FFmpeg allocates several times the room that it is given, whatever it fills of it.
  const std::int64_t most_at_once = most_length(2 * kSamplesAtOnce, in.sample_rate, sample_rate);
  std::int64_t made = 0;
  for (std::int64_t begun = 0; begun <= in.length;) {
    const bool is_last = begun == in.length;  // then what the filter holds back comes out
    const std::int64_t count = std::min(kSamplesAtOnce, in.length - begun);
    for (int c = 0; c < in.channels; ++c)
      in_[static_cast<std::size_t>(c)] =
          reinterpret_cast<const std::uint8_t*>(in.channel(c).data() + begun);
    for (int c = 0; c < channels; ++c)
      out_[static_cast<std::size_t>(c)] =
          reinterpret_cast<std::uint8_t*>(out.channel(c).data() + made);
    const std::int64_t left = most - made;
    const auto room = static_cast<int>(is_last ? left : std::min(left, most_at_once));
    const int got = swr_convert(context, out_.data(), room, is_last ? nullptr : in_.data(),
                                static_cast<int>(count));
    if (got < 0) return no_memory("sound that is resampled");
    made += got;
    if (is_last) break;
    begun += count;
  }
  if (made == 0 && in.length > 0)
    return {Code::kDataLoss, "it has " + counted(static_cast<std::uint64_t>(in.length), "sample") +
                                 ", which are too few to be resampled from " +
                                 std::to_string(in.sample_rate) + " Hz to " +
                                 std::to_string(sample_rate)};
  // The channels stand `most` samples apart so far.
  for (int c = 1; c < channels; ++c)
    std::memmove(out.values.data() + c * made, out.values.data() + c * most,
                 static_cast<std::size_t>(made) * sizeof(float));
  out.reshape(channels, 0, made);
  return {};
}

Result<std::int64_t> Resampler::length_of(std::int64_t length, int from_rate, int to_rate) {
  if (from_rate == to_rate) return length;
  SPDLD_ASSIGN(SwrContext* const context,
               context_of(from_rate, Channels{1, AV_CH_LAYOUT_MONO}, to_rate, 1));
  const std::vector<float> silence(static_cast<std::size_t>(kSamplesAtOnce));
  const std::uint8_t* const in = reinterpret_cast<const std::uint8_t*>(silence.data());
  std::vector<float> heard(
      static_cast<std::size_t>(most_length(2 * kSamplesAtOnce, from_rate, to_rate)));
  std::uint8_t* const out = reinterpret_cast<std::uint8_t*>(heard.data());
  std::int64_t made = 0;
  for (std::int64_t begun = 0; begun <= length; begun += kSamplesAtOnce) {
    const std::int64_t count = std::min(kSamplesAtOnce, length - begun);
    if (count == 0) break;
    const int got =
        swr_convert(context, const_cast<std::uint8_t**>(&out), static_cast<int>(heard.size()),
                    const_cast<const std::uint8_t**>(&in), static_cast<int>(count));
    if (got < 0) return tl::unexpected<Status>(no_memory("sound that is resampled"));
    made += got;
  }
  const int got = swr_convert(context, const_cast<std::uint8_t**>(&out),
                              static_cast<int>(heard.size()), nullptr, 0);
  if (got < 0) return tl::unexpected<Status>(no_memory("sound that is resampled"));
  return made + got;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_decoder.h"

extern "C" {
#include <libavutil/samplefmt.h>
}

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/memory/no_memory.h"
#include "base/text/counted.h"
#include "media/audio/audio_options.h"
#include "media/audio/audio_parameters.h"
#include "media/audio/pcm.h"
#include "media/container/codecs.h"

namespace spdld::media {
namespace {

// Whether avcodec_flush_buffers() leaves a context as it was when it was opened. Some codecs keep
// something, such as the state of the noise that AAC's and AC-3's decoders put in.
bool is_forgetful(const AVCodecParameters& parameters) {
  switch (parameters.codec_id) {
    case AV_CODEC_ID_MP3:
    case AV_CODEC_ID_FLAC: return true;
    // Only when it is opened it skips what the encoder put before the first sample.
    case AV_CODEC_ID_OPUS: return !has_opus_preskip(parameters);
    default: return false;
  }
}

std::optional<PcmFormat> format_of(AVSampleFormat format) {
  using Kind = PcmFormat::Kind;
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_U8: return PcmFormat{Kind::kUnsigned, 1};
    case AV_SAMPLE_FMT_S16: return PcmFormat{Kind::kSigned, 2};
    case AV_SAMPLE_FMT_S32: return PcmFormat{Kind::kSigned, 4};
    case AV_SAMPLE_FMT_FLT: return PcmFormat{Kind::kFloat, 4};
    case AV_SAMPLE_FMT_DBL: return PcmFormat{Kind::kFloat, 8};
    default: return std::nullopt;
  }
}

std::string kind_text(int channels, int sample_rate) {
  return counted(static_cast<std::uint64_t>(channels), "channel") + " at " +
         std::to_string(sample_rate) + " Hz";
}

}  // namespace

bool AudioDecoder::goes_on_with(const AVCodecParameters& next) const {
  if (context_ == nullptr || !clean_ || !has_cut_) return false;
  const AVCodecParameters& last = *parameters_;
  // A damaged header may have left another format, which would be that of the next sound's first
  // frame.
  if (context_->sample_rate != last.sample_rate ||
      context_->ch_layout.nb_channels != last.ch_layout.nb_channels)
    return false;
  return is_forgetful(next) && last.codec_id == next.codec_id && last.codec_tag == next.codec_tag &&
         last.sample_rate == next.sample_rate && last.format == next.format &&
         last.ch_layout.nb_channels == next.ch_layout.nb_channels &&
         last.block_align == next.block_align && last.profile == next.profile &&
         last.bits_per_coded_sample == next.bits_per_coded_sample &&
         last.bits_per_raw_sample == next.bits_per_raw_sample &&
         last.initial_padding == next.initial_padding &&
         last.extradata_size == next.extradata_size &&
         (next.extradata_size == 0 ||
          std::memcmp(last.extradata, next.extradata,
                      static_cast<std::size_t>(next.extradata_size)) == 0);
}

Status AudioDecoder::begin(const AVCodecParameters& parameters, AVRational time_base,
                           int max_channels) {
  clock_.reset();
  max_channels_ = max_channels;
  const char* const name = avcodec_get_name(parameters.codec_id);
  const MediaCodec* const codec = find_media_codec(name);
  if (parameters.codec_type != AVMEDIA_TYPE_AUDIO || codec == nullptr)
    return {Code::kInvalidArgument,
            std::string("its stream is ") + name + ", which is no sound that is decoded"};
  if (parameters.ch_layout.nb_channels > max_channels_)
    return {Code::kResourceExhausted, "it has " + std::to_string(parameters.ch_layout.nb_channels) +
                                          " channels, and decode_audio.max_channels is " +
                                          std::to_string(max_channels_)};
  if (frame_ == nullptr) frame_.reset(av_frame_alloc());
  if (parameters_ == nullptr) parameters_.reset(avcodec_parameters_alloc());
  if (frame_ == nullptr || parameters_ == nullptr) return no_memory("an FFmpeg decoder");
  if (goes_on_with(parameters)) {
    avcodec_flush_buffers(context_.get());
    context_->pkt_timebase = time_base;
    return {};
  }
  context_.reset();
  clean_ = false;
  if (avcodec_parameters_copy(parameters_.get(), &parameters) < 0)
    return no_memory("an FFmpeg decoder");
  SPDLD_ASSIGN(context_, open_decoder(codec->decoder, parameters, time_base));
  clean_ = true;
  has_cut_ = true;
  return {};
}

Status AudioDecoder::failure(int result, const FfmpegReports& reports) const {
  if (result == AVERROR(ENOMEM)) return no_memory("sound that is decoded");
  return {Code::kDataLoss,
          std::string("corrupt ") + avcodec_get_name(parameters_->codec_id) +
              ": FFmpeg says: " + (reports.any() ? reports.first() : av_error_text(result))};
}

Result<bool> AudioDecoder::decode(const AVPacket* packet, SoundWindow& window) {
  if (packet != nullptr &&
      av_packet_get_side_data(packet, AV_PKT_DATA_SKIP_SAMPLES, nullptr) != nullptr)
    has_cut_ = false;
  FfmpegReports reports;
  const int sent = avcodec_send_packet(context_.get(), packet);
  if (sent < 0) {
    clean_ = false;
    return tl::unexpected<Status>(failure(sent, reports));
  }
  while (true) {
    const int received = avcodec_receive_frame(context_.get(), frame_.get());
    if (received == AVERROR(EAGAIN) || received == AVERROR_EOF) return true;
    if (received < 0) {
      clean_ = false;
      return tl::unexpected<Status>(failure(received, reports));
    }
    auto taken = take_frame(window);
    av_frame_unref(frame_.get());
    if (!taken || !*taken) return taken;
  }
}

Result<bool> AudioDecoder::take_frame(SoundWindow& window) {
  const AVFrame& frame = *frame_;
  has_cut_ = true;
  const auto av_format = static_cast<AVSampleFormat>(frame.format);
  const std::optional<PcmFormat> format = format_of(av_format);
  const int count = frame.ch_layout.nb_channels;
  if (!format || count <= 0 || frame.sample_rate <= 0 || frame.sample_rate > kMostRate)
    return error(Code::kDataLoss,
                 "its sound has " + kind_text(std::max(count, 0), frame.sample_rate));
  if (!window.has_format()) {
    if (count > max_channels_)
      return error(Code::kResourceExhausted, "it has " + std::to_string(count) +
                                                 " channels, and decode_audio.max_channels "
                                                 "is " +
                                                 std::to_string(max_channels_));
    window.set_format(Channels::of(frame.ch_layout), frame.sample_rate);
  } else if (window.channels().count != count || window.sample_rate() != frame.sample_rate) {
    return error(Code::kDataLoss, "its sound changes within: it has " +
                                      kind_text(window.channels().count, window.sample_rate()) +
                                      ", and then " + kind_text(count, frame.sample_rate));
  }
  if (clock_ && frame.pts != AV_NOPTS_VALUE) {
    window.go_to(clock_->sample_at(frame.pts, frame.nb_samples));
    clock_.reset();
  }
  const bool planar = av_sample_fmt_is_planar(av_format) != 0;
  const auto bytes = static_cast<std::size_t>(format->bytes);
  const std::size_t stride = planar ? bytes : bytes * static_cast<std::size_t>(count);
  return window.append(
      frame.nb_samples, [&](int channel, std::int64_t from, std::int64_t many, float* out) {
        const auto c = static_cast<std::size_t>(channel);
        const auto* const plane = reinterpret_cast<const std::byte*>(
            planar ? frame.extended_data[c] : frame.extended_data[0] + c * bytes);
        read_pcm(*format, plane + static_cast<std::size_t>(from) * stride, stride, many, out);
      });
}

}  // namespace spdld::media

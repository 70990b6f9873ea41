// SPDX-License-Identifier: Apache-2.0
#include "media/sound_format.h"

extern "C" {
#include <libavutil/samplefmt.h>
}

#include <cstring>

#include "base/no_memory.h"
#include "media/codec_parameters.h"
#include "media/codecs.h"

namespace spdld::media {

bool hides_format(AVCodecID codec) {
  return codec == AV_CODEC_ID_AAC || codec == AV_CODEC_ID_MP3 || codec == AV_CODEC_ID_MP2 ||
         codec == AV_CODEC_ID_AC3 || codec == AV_CODEC_ID_FLAC;
}

Result<std::optional<SoundFormat>> sound_format(const AVCodecParameters& codec,
                                                std::span<const std::byte> packet) {
  constexpr std::size_t kLargestPacket = 1 << 20;
  if (packet.empty() || packet.size() > kLargestPacket) return std::nullopt;
  quieten_ffmpeg();
  const MediaCodec* known = find_media_codec(avcodec_get_name(codec.codec_id));
  const AVCodec* decoder =
      known == nullptr ? nullptr : avcodec_find_decoder_by_name(known->decoder);
  if (decoder == nullptr) return std::nullopt;
  const AvPtr<AVCodecContext> context(avcodec_alloc_context3(decoder));
  const AvPtr<AVPacket> input(av_packet_alloc());
  const AvPtr<AVFrame> frame(av_frame_alloc());
  if (context == nullptr || input == nullptr || frame == nullptr ||
      avcodec_parameters_to_context(context.get(), &codec) < 0 ||
      av_new_packet(input.get(), static_cast<int>(packet.size())) < 0)
    return tl::unexpected<Status>(no_memory("a decoder of sound"));
  context->thread_count = 1;
  // Damage that a decoder would cover up makes no format.
  context->err_recognition = AV_EF_EXPLODE;
  std::memcpy(input->data, packet.data(), packet.size());
  if (avcodec_open2(context.get(), decoder, nullptr) < 0 ||
      avcodec_send_packet(context.get(), input.get()) < 0 ||
      avcodec_receive_frame(context.get(), frame.get()) < 0)
    return std::nullopt;
  const char* sample = av_get_sample_fmt_name(static_cast<AVSampleFormat>(frame->format));
  return SoundFormat{.sample_rate = frame->sample_rate,
                     .channels = frame->ch_layout.nb_channels,
                     .channel_layout = channel_layout_name(frame->ch_layout),
                     .sample_format = sample == nullptr ? "" : sample,
                     .frame_size = frame->nb_samples};
}

}  // namespace spdld::media

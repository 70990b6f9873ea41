// SPDX-License-Identifier: Apache-2.0
#include "media/probe/sound_format.h"

extern "C" {
#include <libavutil/samplefmt.h>
}

#include "media/container/codec_parameters.h"
#include "media/container/decode_packet.h"

namespace spdld::media {

bool hides_format(AVCodecID codec) {
  return codec == AV_CODEC_ID_AAC || codec == AV_CODEC_ID_MP3 || codec == AV_CODEC_ID_MP2 ||
         codec == AV_CODEC_ID_AC3 || codec == AV_CODEC_ID_FLAC;
}

Result<std::optional<SoundFormat>> sound_format(const AVCodecParameters& codec,
                                                std::span<const std::byte> packet) {
  constexpr std::size_t kLargestPacket = 1 << 20;
  if (packet.size() > kLargestPacket) return std::nullopt;
  SPDLD_ASSIGN(const AvPtr<AVFrame> frame, decode_packet(codec, packet));
  if (frame == nullptr) return std::nullopt;
  const char* sample = av_get_sample_fmt_name(static_cast<AVSampleFormat>(frame->format));
  return SoundFormat{.sample_rate = frame->sample_rate,
                     .channels = frame->ch_layout.nb_channels,
                     .channel_layout = channel_layout_name(frame->ch_layout),
                     .sample_format = sample == nullptr ? "" : sample,
                     .frame_size = frame->nb_samples};
}

}  // namespace spdld::media

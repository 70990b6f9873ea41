// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_parameters.h"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/intreadwrite.h>
#include <libavutil/samplefmt.h>
}

#include "media/audio/channels.h"
#include "media/container/codec_parameters.h"

namespace spdld::media {

namespace {

// RFC 7845: "OpusHead", version, channels, pre-skip.
constexpr int kPreskipAt = 10;

}  // namespace

bool has_opus_preskip(const AVCodecParameters& parameters) {
  return parameters.extradata_size >= kPreskipAt + 2 &&
         AV_RL16(parameters.extradata + kPreskipAt) != 0;
}

void clear_opus_preskip(AVCodecParameters& parameters) {
  if (has_opus_preskip(parameters)) AV_WL16(parameters.extradata + kPreskipAt, 0);
}

Status set_audio_parameters(const CodecParameters& codec, AVCodecParameters& out) {
  SPDLD_TRY(set_parameters(codec, AVMEDIA_TYPE_AUDIO, out));
  out.sample_rate = codec.sample_rate;
  out.format = codec.sample_format.empty() ? AV_SAMPLE_FMT_NONE
                                           : av_get_sample_fmt(codec.sample_format.c_str());
  out.block_align = codec.block_align;
  out.frame_size = codec.frame_size;
  out.initial_padding = codec.initial_padding;
  out.trailing_padding = codec.trailing_padding;
  out.seek_preroll = codec.seek_preroll;
  av_channel_layout_uninit(&out.ch_layout);
  if (codec.channels > 0)
    out.ch_layout = Channels::of(codec.channels, codec.channel_layout).layout();
  return {};
}

}  // namespace spdld::media

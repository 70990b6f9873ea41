// SPDX-License-Identifier: Apache-2.0
#include "media/audio_parameters.h"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/intreadwrite.h>
#include <libavutil/mem.h>
#include <libavutil/samplefmt.h>
}

#include <cstring>
#include <string>

#include "base/no_memory.h"
#include "media/channels.h"

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
  const AVCodecDescriptor* const descriptor = avcodec_descriptor_get_by_name(codec.codec.c_str());
  if (descriptor == nullptr || descriptor->type != AVMEDIA_TYPE_AUDIO)
    return {Code::kDataLoss, "its stream is of the codec '" + codec.codec + "', which is no sound"};
  av_freep(static_cast<void*>(&out.extradata));
  out.extradata_size = 0;
  out.codec_type = AVMEDIA_TYPE_AUDIO;
  out.codec_id = descriptor->id;
  out.codec_tag = codec.tag;
  out.bit_rate = codec.bit_rate;
  out.profile = codec.profile;
  out.level = codec.level;
  out.bits_per_coded_sample = codec.bits_per_coded_sample;
  out.bits_per_raw_sample = codec.bits_per_raw_sample;
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
  if (codec.extradata.empty()) return {};
  const std::size_t size = codec.extradata.size();
  out.extradata = static_cast<std::uint8_t*>(av_mallocz(size + AV_INPUT_BUFFER_PADDING_SIZE));
  if (out.extradata == nullptr) return no_memory("an FFmpeg decoder");
  std::memcpy(out.extradata, codec.extradata.data(), size);
  out.extradata_size = static_cast<int>(size);
  return {};
}

}  // namespace spdld::media

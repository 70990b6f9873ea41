// SPDX-License-Identifier: Apache-2.0
#include "media/container/codec_parameters.h"

extern "C" {
#include <libavutil/channel_layout.h>
#include <libavutil/mem.h>
#include <libavutil/pixdesc.h>
#include <libavutil/samplefmt.h>
}

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/memory/no_memory.h"

namespace spdld::media {
namespace {

std::string text_or_none(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

std::string channel_layout_name(const AVChannelLayout& layout) {
  if (layout.order == AV_CHANNEL_ORDER_UNSPEC) return "";
  std::array<char, 128> name{};
  const int count = av_channel_layout_describe(&layout, name.data(), name.size());
  return count > 0 && static_cast<std::size_t>(count) <= name.size() ? name.data() : "";
}

Status set_parameters(const CodecParameters& codec, AVMediaType type, AVCodecParameters& out) {
  const AVCodecDescriptor* const descriptor = avcodec_descriptor_get_by_name(codec.codec.c_str());
  if (descriptor == nullptr || descriptor->type != type)
    return {Code::kDataLoss, "its stream is of the codec '" + codec.codec + "', which is no " +
                                 (type == AVMEDIA_TYPE_AUDIO ? "sound" : "video")};
  out.codec_type = type;
  out.codec_id = descriptor->id;
  out.codec_tag = codec.tag;
  out.bit_rate = codec.bit_rate;
  out.profile = codec.profile;
  out.level = codec.level;
  out.bits_per_coded_sample = codec.bits_per_coded_sample;
  out.bits_per_raw_sample = codec.bits_per_raw_sample;
  av_freep(static_cast<void*>(&out.extradata));
  out.extradata_size = 0;
  if (codec.extradata.empty()) return {};
  const std::size_t size = codec.extradata.size();
  out.extradata = static_cast<std::uint8_t*>(av_mallocz(size + AV_INPUT_BUFFER_PADDING_SIZE));
  if (out.extradata == nullptr) return no_memory("an FFmpeg decoder");
  std::memcpy(out.extradata, codec.extradata.data(), size);
  out.extradata_size = static_cast<int>(size);
  return {};
}

CodecParameters codec_parameters(const AVCodecParameters& codec, AVRational sample_aspect) {
  CodecParameters made;
  made.codec = avcodec_get_name(codec.codec_id);
  made.tag = codec.codec_tag;
  const auto* const extra = reinterpret_cast<const std::byte*>(codec.extradata);
  if (codec.extradata_size > 0) made.extradata.assign(extra, extra + codec.extradata_size);
  made.bit_rate = codec.bit_rate;
  made.profile = codec.profile;
  made.level = codec.level;
  made.bits_per_coded_sample = codec.bits_per_coded_sample;
  made.bits_per_raw_sample = codec.bits_per_raw_sample;
  if (codec.codec_type == AVMEDIA_TYPE_VIDEO) {
    made.width = codec.width;
    made.height = codec.height;
    made.pixel_format = text_or_none(av_get_pix_fmt_name(static_cast<AVPixelFormat>(codec.format)));
    if (sample_aspect.num == 0) sample_aspect = codec.sample_aspect_ratio;
    made.sample_aspect = {sample_aspect.num, sample_aspect.den};
    made.color_range = text_or_none(av_color_range_name(codec.color_range));
    made.color_space = text_or_none(av_color_space_name(codec.color_space));
    made.color_primaries = text_or_none(av_color_primaries_name(codec.color_primaries));
    made.color_transfer = text_or_none(av_color_transfer_name(codec.color_trc));
    made.chroma_location = text_or_none(av_chroma_location_name(codec.chroma_location));
    made.reorder_frames = codec.video_delay;
  } else {
    made.sample_rate = codec.sample_rate;
    made.channels = codec.ch_layout.nb_channels;
    made.channel_layout = channel_layout_name(codec.ch_layout);
    made.sample_format =
        text_or_none(av_get_sample_fmt_name(static_cast<AVSampleFormat>(codec.format)));
    made.block_align = codec.block_align;
    made.frame_size = codec.frame_size;
    made.initial_padding = codec.initial_padding;
    made.trailing_padding = codec.trailing_padding;
    made.seek_preroll = codec.seek_preroll;
  }
  return made;
}

Turn turn_of(const AVStream& stream) {
  // Rows of 3; the picture's point (x, y) goes to (x * m[0] + y * m[3], x * m[1] + y * m[4]).
  std::array<std::int32_t, 9> m{};
  std::size_t bytes = 0;
  const std::uint8_t* data = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
  if (data == nullptr || bytes < sizeof(m)) return {};
  std::memcpy(m.data(), data, sizeof(m));
  double x = m[0];
  double y = m[1];
  Turn turn;
  turn.mirrored = x * m[4] - y * m[3] < 0;
  if (turn.mirrored) {
    x = -x;
    y = -y;
  }
  if (x == 0 && y == 0) return {0, false, false};
  const double quarters = std::atan2(y, x) / (std::numbers::pi / 2);
  const double nearest = std::round(quarters);
  constexpr double kSlack = 0.01;
  turn.exact = std::abs(quarters - nearest) < kSlack;
  turn.rotation = (static_cast<int>(nearest) + 4) % 4 * 90;
  return turn;
}

}  // namespace spdld::media

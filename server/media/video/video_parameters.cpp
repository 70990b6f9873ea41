// SPDX-License-Identifier: Apache-2.0
#include "media/video/video_parameters.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

#include <string>

#include "base/memory/no_memory.h"
#include "media/container/codec_parameters.h"

namespace spdld::media {
namespace {

// The value that FFmpeg finds by a name, or `otherwise` for one that it does not know.
template <typename Value>
Value named(int (*find)(const char*), const std::string& name, Value otherwise) {
  const int found = name.empty() ? -1 : find(name.c_str());
  return found < 0 ? otherwise : static_cast<Value>(found);
}

}  // namespace

Result<AvPtr<AVCodecParameters>> video_parameters(const CodecParameters& codec) {
  AvPtr<AVCodecParameters> out(avcodec_parameters_alloc());
  if (out == nullptr) return tl::unexpected<Status>(no_memory("an FFmpeg decoder"));
  SPDLD_TRY(set_parameters(codec, AVMEDIA_TYPE_VIDEO, *out));
  out->width = codec.width;
  out->height = codec.height;
  out->format = codec.pixel_format.empty()
                    ? static_cast<int>(AV_PIX_FMT_NONE)
                    : static_cast<int>(av_get_pix_fmt(codec.pixel_format.c_str()));
  out->color_range = named(av_color_range_from_name, codec.color_range, AVCOL_RANGE_UNSPECIFIED);
  out->color_space = named(av_color_space_from_name, codec.color_space, AVCOL_SPC_UNSPECIFIED);
  out->color_primaries =
      named(av_color_primaries_from_name, codec.color_primaries, AVCOL_PRI_UNSPECIFIED);
  out->color_trc = named(av_color_transfer_from_name, codec.color_transfer, AVCOL_TRC_UNSPECIFIED);
  out->chroma_location =
      named(av_chroma_location_from_name, codec.chroma_location, AVCHROMA_LOC_UNSPECIFIED);
  out->video_delay = codec.reorder_frames;
  return out;
}

bool decode_alike(const CodecParameters& a, const CodecParameters& b) {
  return a.codec == b.codec && a.tag == b.tag && a.extradata == b.extradata &&
         a.profile == b.profile && a.level == b.level &&
         a.bits_per_coded_sample == b.bits_per_coded_sample &&
         a.bits_per_raw_sample == b.bits_per_raw_sample && a.width == b.width &&
         a.height == b.height && a.pixel_format == b.pixel_format &&
         a.color_range == b.color_range && a.color_space == b.color_space &&
         a.color_primaries == b.color_primaries && a.color_transfer == b.color_transfer &&
         a.chroma_location == b.chroma_location && a.reorder_frames == b.reorder_frames;
}

}  // namespace spdld::media

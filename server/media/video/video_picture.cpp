// SPDX-License-Identifier: Apache-2.0
#include "media/video/video_picture.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

#include <bit>
#include <string>
#include <string_view>

namespace spdld::media {
namespace {

VideoPicture::Matrix matrix_of(AVColorSpace space) {
  switch (space) {
    case AVCOL_SPC_RGB:  // of samples that are no RGB: swscale takes its first entry
    case AVCOL_SPC_BT709: return VideoPicture::Matrix::kBt709;
    case AVCOL_SPC_FCC: return VideoPicture::Matrix::kFcc;
    case AVCOL_SPC_SMPTE240M: return VideoPicture::Matrix::kSmpte240m;
    case AVCOL_SPC_BT2020_NCL:
    case AVCOL_SPC_BT2020_CL: return VideoPicture::Matrix::kBt2020;
    default: return VideoPicture::Matrix::kBt601;
  }
}

void place_chroma(AVChromaLocation location, VideoPicture& picture) {
  switch (location) {
    case AVCHROMA_LOC_LEFT: picture.chroma_x = ChromaAxis::kFirst; break;
    case AVCHROMA_LOC_TOPLEFT:
      picture.chroma_x = ChromaAxis::kFirst;
      picture.chroma_y = ChromaAxis::kFirst;
      break;
    case AVCHROMA_LOC_TOP: picture.chroma_y = ChromaAxis::kFirst; break;
    case AVCHROMA_LOC_BOTTOMLEFT:
      picture.chroma_x = ChromaAxis::kFirst;
      picture.chroma_y = ChromaAxis::kSecond;
      break;
    case AVCHROMA_LOC_BOTTOM: picture.chroma_y = ChromaAxis::kSecond; break;
    default: break;
  }
}

// Whether each component lies in a plane of its own, in whole bytes of the machine's order.
bool is_planar(const AVPixFmtDescriptor& format) {
  constexpr std::uint64_t kOthers = AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
                                    AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_BAYER |
                                    AV_PIX_FMT_FLAG_FLOAT;
  if ((format.flags & kOthers) != 0) return false;
  const int depth = format.comp[0].depth;
  if (depth < 8 || depth > 16) return false;
  const bool is_big = (format.flags & AV_PIX_FMT_FLAG_BE) != 0;
  if (depth > 8 && is_big != (std::endian::native == std::endian::big)) return false;
  const int colors = format.nb_components <= 2 ? 1 : 3;
  for (int i = 0; i < colors; ++i) {
    const AVComponentDescriptor& component = format.comp[i];
    if (component.depth != depth || component.shift != 0 || component.offset != 0 ||
        component.step != (depth > 8 ? 2 : 1))
      return false;
    for (int j = 0; j < i; ++j) {
      if (format.comp[j].plane == component.plane) return false;
    }
  }
  return true;
}

}  // namespace

Result<VideoPicture> picture_of(const AVFrame& frame) {
  const AVPixFmtDescriptor* const format =
      av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  if (format == nullptr || !is_planar(*format))
    return error(Code::kInvalidArgument,
                 "video with pixels of the format '" +
                     std::string(format == nullptr ? "unknown" : format->name) +
                     "' is not read: planar YUV, RGB and gray of 8 to 16 bits are; convert the "
                     "file with 'ffmpeg -pix_fmt yuv420p'");
  VideoPicture picture;
  const bool is_gray = format->nb_components <= 2;
  const bool is_rgb = (format->flags & AV_PIX_FMT_FLAG_RGB) != 0;
  picture.kind = is_gray  ? VideoPicture::Kind::kGray
                 : is_rgb ? VideoPicture::Kind::kGbr
                          : VideoPicture::Kind::kYuv;
  picture.size = {frame.width, frame.height};
  picture.bits = format->comp[0].depth;
  picture.shift_x = format->log2_chroma_w;
  picture.shift_y = format->log2_chroma_h;
  // Planes in FFmpeg's order: of RGB, green stands first.
  for (std::size_t i = 0; i < (is_gray ? 1U : 3U); ++i)
    picture.planes[i] = {frame.data[i], frame.linesize[i]};
  picture.matrix = matrix_of(frame.colorspace);
  picture.full_range =
      frame.color_range == AVCOL_RANGE_JPEG || std::string_view(format->name).starts_with("yuvj");
  place_chroma(frame.chroma_location, picture);
  return picture;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/libraries.h"

#include <avif/avif.h>
#include <jpeglib.h>
#include <webp/decode.h>
#include <zlib.h>

extern "C" {
#include <libavutil/avutil.h>
#include <libswresample/swresample.h>
}

#include <array>

#include "media/container/codecs.h"
#include "media/container/ffmpeg.h"

#define SPDLD_TEXT_OF(macro) SPDLD_QUOTED(macro)
#define SPDLD_QUOTED(text) #text

namespace spdld::media {
namespace {

// Of a number that has the last two parts of its version in 8 bits each, as FFmpeg's and WebP's.
std::string dotted(unsigned version) {
  return std::to_string(version >> 16) + '.' + std::to_string(version >> 8 & 0xFF) + '.' +
         std::to_string(version & 0xFF);
}

std::string codecs_of(StreamInfo::Kind kind, bool decoded) {
  std::string names;
  for (const MediaCodec& codec : media_codecs()) {
    const bool has = avcodec_find_decoder_by_name(codec.decoder) != nullptr;
    if (codec.kind == kind && has == decoded) names.append(" ").append(codec.name);
  }
  return names;
}

}  // namespace

std::string describe_libraries() {
  std::array<char, 256> avif_codecs{};
  avifCodecVersions(avif_codecs.data());
  std::string text = "FFmpeg " + std::string(av_version_info()) + ": libavcodec " +
                     dotted(avcodec_version()) + ", libavformat " + dotted(avformat_version()) +
                     ", libswresample " + dotted(swresample_version()) + ", libavutil " +
                     dotted(avutil_version()) + "; " + avutil_license() + "\n";
  text += std::string("libavif ") + avifVersion() + ": " + avif_codecs.data() + "\n";
  text += "libjpeg-turbo " SPDLD_TEXT_OF(LIBJPEG_TURBO_VERSION) "\n";
  text += "libwebp " + dotted(static_cast<unsigned>(WebPGetDecoderVersion())) + "\n";
  text += std::string("zlib ") + zlibVersion() + "\n";
  text += "decodes video:" + codecs_of(StreamInfo::Kind::kVideo, true) + "\n";
  text += "decodes sound:" + codecs_of(StreamInfo::Kind::kAudio, true) + "\n";
  const std::string missing =
      codecs_of(StreamInfo::Kind::kVideo, false) + codecs_of(StreamInfo::Kind::kAudio, false);
  if (!missing.empty()) text += "this FFmpeg has no decoder for:" + missing + "\n";
  return text;
}

}  // namespace spdld::media

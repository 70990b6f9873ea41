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

// A line that begins so, and has the names that FFmpeg has a decoder for; the others go into
// `missing`.
class CodecLine {
 public:
  CodecLine(const std::string& begin, std::string& missing)
      : text_("decodes " + begin), missing_(missing) {}

  void add(const char* codec, const char* decoder) {
    std::string& names = avcodec_find_decoder_by_name(decoder) != nullptr ? text_ : missing_;
    names.append(" ").append(codec);
  }
  std::string text() const { return text_ + '\n'; }

 private:
  std::string text_;
  std::string& missing_;
};

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
  std::string missing;
  CodecLine images("images: avif jpeg webp", missing);
  CodecLine video("video:", missing);
  CodecLine sound("sound:", missing);
  for (const char* name : image_decoders()) images.add(name, name);
  for (const MediaCodec& codec : media_codecs())
    (codec.kind == StreamInfo::Kind::kVideo ? video : sound).add(codec.name, codec.decoder);
  text += images.text() + video.text() + sound.text();
  if (!missing.empty()) text += "this FFmpeg has no decoder for:" + missing + "\n";
  return text;
}

}  // namespace spdld::media

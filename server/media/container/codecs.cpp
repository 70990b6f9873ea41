// SPDX-License-Identifier: Apache-2.0
#include "media/container/codecs.h"

#include <algorithm>
#include <array>

namespace spdld::media {
namespace {

constexpr auto kVideo = StreamInfo::Kind::kVideo;
constexpr auto kAudio = StreamInfo::Kind::kAudio;

constexpr std::array kCodecs = {
    MediaCodec{"h264", "h264", kVideo},
    MediaCodec{"hevc", "hevc", kVideo},
    MediaCodec{"vp8", "vp8", kVideo},
    MediaCodec{"vp9", "vp9", kVideo},
    MediaCodec{"av1", "libdav1d", kVideo},
    MediaCodec{"mpeg4", "mpeg4", kVideo},
    MediaCodec{"mpeg2video", "mpeg2video", kVideo},
    MediaCodec{"mpeg1video", "mpeg1video", kVideo},
    MediaCodec{"mjpeg", "mjpeg", kVideo},
    MediaCodec{"prores", "prores", kVideo},
    MediaCodec{"ffv1", "ffv1", kVideo},
    MediaCodec{"aac", "aac", kAudio},
    MediaCodec{"mp3", "mp3float", kAudio},
    MediaCodec{"mp2", "mp2", kAudio},
    MediaCodec{"opus", "opus", kAudio},
    MediaCodec{"vorbis", "vorbis", kAudio},
    MediaCodec{"flac", "flac", kAudio},
    MediaCodec{"alac", "alac", kAudio},
    MediaCodec{"ac3", "ac3", kAudio},
    MediaCodec{"pcm_u8", "pcm_u8", kAudio},
    MediaCodec{"pcm_s16le", "pcm_s16le", kAudio},
    MediaCodec{"pcm_s16be", "pcm_s16be", kAudio},
    MediaCodec{"pcm_s24le", "pcm_s24le", kAudio},
    MediaCodec{"pcm_s24be", "pcm_s24be", kAudio},
    MediaCodec{"pcm_s32le", "pcm_s32le", kAudio},
    MediaCodec{"pcm_s32be", "pcm_s32be", kAudio},
    MediaCodec{"pcm_f32le", "pcm_f32le", kAudio},
    MediaCodec{"pcm_f32be", "pcm_f32be", kAudio},
    MediaCodec{"pcm_f64le", "pcm_f64le", kAudio},
    MediaCodec{"pcm_f64be", "pcm_f64be", kAudio},
    MediaCodec{"pcm_alaw", "pcm_alaw", kAudio},
    MediaCodec{"pcm_mulaw", "pcm_mulaw", kAudio},
};

constexpr std::array kImageDecoders = {"bmp", "gif", "png", "tiff"};

}  // namespace

std::span<const char* const> image_decoders() { return kImageDecoders; }

std::span<const MediaCodec> media_codecs() { return kCodecs; }

const MediaCodec* find_media_codec(std::string_view codec) {
  const auto* const found = std::find_if(kCodecs.begin(), kCodecs.end(),
                                         [&](const MediaCodec& one) { return codec == one.name; });
  return found == kCodecs.end() ? nullptr : &*found;
}

bool is_pcm(std::string_view codec) { return codec.starts_with("pcm_"); }

}  // namespace spdld::media

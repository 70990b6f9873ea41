// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "op/media.h"

namespace spdld::media {

// A codec of video or sound that is decoded, and the one decoder that serves it: never a hardware
// or an experimental one, and never another that a different build of FFmpeg would prefer.
struct MediaCodec {
  const char* name;     // FFmpeg's name of the codec: CodecParameters::codec
  const char* decoder;  // what open_decoder() is given
  StreamInfo::Kind kind;
};

std::span<const MediaCodec> media_codecs();

// FFmpeg's decoders of still images: a FrameDecoder is one of them.
std::span<const char* const> image_decoders();

// Null: packets of this codec are not decoded.
const MediaCodec* find_media_codec(std::string_view codec);

// Whether the codec is uncompressed sound whose samples have a fixed size.
bool is_pcm(std::string_view codec);

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "op/image.h"

namespace spdld::media::test {

// How a test wants its WebP. Pixels are a gradient under noise, a function of the seed.
struct WebpRecipe {
  int width = 61;
  int height = 43;
  bool alpha = false;
  bool lossless = false;
  float quality = 60;
  std::uint64_t seed = 1;
};

// As plain as such an image can be: RIFF and its one or two chunks.
std::vector<std::byte> make_webp(const WebpRecipe& recipe);

// The chunks of a file, without the RIFF header.
std::vector<std::byte> webp_chunk(std::string_view name, const std::vector<std::byte>& body);

// A file of these chunks behind a VP8X chunk. `flags` are libwebp's: 0x10 alpha, 8 EXIF, 2
// animated.
std::vector<std::byte> make_webp_of(Size canvas, unsigned flags,
                                    const std::vector<std::vector<std::byte>>& chunks);

// The chunks behind the RIFF header of a file that make_webp() made.
std::vector<std::byte> webp_chunks_of(const std::vector<std::byte>& webp);

// An ANMF chunk: one frame of an animation.
std::vector<std::byte> webp_frame(const Rect& place, const std::vector<std::byte>& chunks);

// What the bare library makes of a file: RGB, or RGBA.
std::vector<std::uint8_t> bare_decode_webp(const std::vector<std::byte>& webp, int channels);

}  // namespace spdld::media::test

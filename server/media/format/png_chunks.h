// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace spdld::media {

constexpr std::size_t kPngSignatureBytes = 8;

// A chunk's name as the big-endian number in the file.
constexpr std::uint32_t png_name(const char (&name)[5]) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(name[i]);
  return value;
}

struct PngChunk {
  std::uint32_t name = 0;
  std::span<const std::byte> body;
  std::span<const std::byte> whole;  // length, name, body and checksum
};

// Goes from chunk to chunk behind the signature. A chunk that reaches beyond the end of the file
// ends the walk as the end itself does.
class PngChunks {
 public:
  explicit PngChunks(std::span<const std::byte> file) : file_(file) {}
  bool next(PngChunk& chunk);

 private:
  std::span<const std::byte> file_;
  std::size_t at_ = kPngSignatureBytes;
};

// What the chunks of a whole PNG tell without decoding it.
struct PngLayout {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  unsigned bit_depth = 0;
  unsigned color_type = 0;
  std::uint64_t needed_bytes = 0;           // of the chunks that the decoder needs
  std::span<const std::byte> transparency;  // of tRNS: fit for the colour type, or empty
  std::span<const std::byte> exif;          // the TIFF block of eXIf, or empty
  PngChunk raw_exif;  // the text "Raw profile type exif"; no name: there is none
  PngChunk xmp;       // the text "XML:com.adobe.xmp"; likewise
};

unsigned png_samples(const PngLayout& layout);  // a pixel
unsigned png_pixel_bits(const PngLayout& layout);

// Whether the decoder needs the chunk. The rest (text, profiles, times, animation) is kept from it:
// a compressed text can be a bomb of its own. Transparency is among the rest because it says what
// pixels mean, and not what they are.
bool png_needs(std::uint32_t name);

// kDataLoss when the file is truncated, breaks the format, or claims more pixels than its data can
// hold. Checksums are the decoder's to check.
Result<PngLayout> survey_png(std::span<const std::byte> bytes);

}  // namespace spdld::media

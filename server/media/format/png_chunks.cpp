// SPDX-License-Identifier: Apache-2.0
#include "media/format/png_chunks.h"

#include <cstring>
#include <string>
#include <string_view>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

constexpr std::uint32_t kIhdr = png_name("IHDR");
constexpr std::uint32_t kPlte = png_name("PLTE");
constexpr std::uint32_t kIdat = png_name("IDAT");
constexpr std::uint32_t kIend = png_name("IEND");
constexpr std::uint32_t kTrns = png_name("tRNS");
constexpr std::uint32_t kExif = png_name("eXIf");
constexpr std::size_t kFrameBytes = 12;  // a chunk's length, name and checksum
constexpr std::size_t kIhdrBytes = 13;
constexpr unsigned kPalette = 3;

// With the zero byte that ends a keyword.
constexpr std::string_view kRawExif("Raw profile type exif\0", 22);
constexpr std::string_view kXmp("XML:com.adobe.xmp\0", 18);

bool has_keyword(const PngChunk& chunk, std::string_view keyword) {
  return (chunk.name == png_name("tEXt") || chunk.name == png_name("zTXt") ||
          chunk.name == png_name("iTXt")) &&
         chunk.body.size() >= keyword.size() &&
         std::memcmp(chunk.body.data(), keyword.data(), keyword.size()) == 0;
}

detail::Failure corrupt_png(const std::string& why) { return media::corrupt("PNG", why); }

// Samples a pixel, or 0 for a combination that the format does not have.
unsigned samples(unsigned color_type, unsigned bit_depth) {
  const bool whole_bytes = bit_depth == 8 || bit_depth == 16;
  const bool packed = bit_depth == 1 || bit_depth == 2 || bit_depth == 4;
  switch (color_type) {
    case 0: return whole_bytes || packed ? 1 : 0;
    case 2: return whole_bytes ? 3 : 0;
    case kPalette: return packed || bit_depth == 8 ? 1 : 0;
    case 4: return whole_bytes ? 2 : 0;
    case 6: return whole_bytes ? 4 : 0;
    default: return 0;
  }
}

Status read_ihdr(std::span<const std::byte> body, PngLayout& layout) {
  if (body.size() != kIhdrBytes) return {Code::kDataLoss, "corrupt PNG: IHDR has a wrong length"};
  layout.width = be32(body, 0);
  layout.height = be32(body, 4);
  layout.bit_depth = std::to_integer<unsigned>(body[8]);
  layout.color_type = std::to_integer<unsigned>(body[9]);
  constexpr std::uint32_t kMostPngSide = 0x7FFFFFFF;
  if (layout.width == 0 || layout.height == 0 || layout.width > kMostPngSide ||
      layout.height > kMostPngSide) {
    return {Code::kDataLoss, "corrupt PNG: impossible size " + std::to_string(layout.width) + "x" +
                                 std::to_string(layout.height)};
  }
  if (samples(layout.color_type, layout.bit_depth) == 0) {
    return {Code::kDataLoss, "corrupt PNG: no such format as colour type " +
                                 std::to_string(layout.color_type) + " with " +
                                 std::to_string(layout.bit_depth) + " bits"};
  }
  if (body[10] != std::byte{0} || body[11] != std::byte{0} || body[12] > std::byte{1}) {
    return {Code::kDataLoss, "corrupt PNG: unknown compression, filter or interlace method"};
  }
  return {};
}

// Deflate makes at most 1032 bytes of one.
bool can_hold(std::uint64_t data_bytes, const PngLayout& layout) {
  const std::uint64_t bits_per_pixel = png_pixel_bits(layout);
  const std::uint64_t pixels = std::uint64_t{layout.width} * layout.height;
  // Eighths of bytes need up to 68 bits: compare pixels instead.
  return pixels / 8 <= data_bytes * 1032 / bits_per_pixel + 1;
}

// A broken one must not cost the image.
bool is_transparency(std::span<const std::byte> body, const PngLayout& layout) {
  switch (layout.color_type) {
    case 0: return body.size() == 2;
    case 2: return body.size() == 6;
    case kPalette: return !body.empty() && body.size() <= 256;
    default: return false;
  }
}

}  // namespace

bool PngChunks::next(PngChunk& chunk) {
  if (at_ > file_.size() || file_.size() - at_ < kFrameBytes) return false;
  const std::size_t length = be32(file_, at_);
  if (length > file_.size() - at_ - kFrameBytes) return false;
  chunk.name = be32(file_, at_ + 4);
  chunk.body = file_.subspan(at_ + 8, length);
  chunk.whole = file_.subspan(at_, length + kFrameBytes);
  at_ += length + kFrameBytes;
  return true;
}

unsigned png_samples(const PngLayout& layout) {
  return samples(layout.color_type, layout.bit_depth);
}

unsigned png_pixel_bits(const PngLayout& layout) { return png_samples(layout) * layout.bit_depth; }

bool png_needs(std::uint32_t name) {
  return name == kIhdr || name == kPlte || name == kIdat || name == kIend;
}

Result<PngLayout> survey_png(std::span<const std::byte> bytes) {
  PngLayout layout;
  std::uint64_t data_bytes = 0;
  bool header = false;
  bool palette = false;
  PngChunks chunks(bytes);
  PngChunk chunk;
  while (chunks.next(chunk)) {
    if (!header && chunk.name != kIhdr) return corrupt_png("IHDR is not its first chunk");
    if (png_needs(chunk.name)) layout.needed_bytes += chunk.whole.size();
    if (chunk.name == kIhdr) {
      if (header) return corrupt_png("IHDR is there twice");
      SPDLD_TRY(read_ihdr(chunk.body, layout));
      header = true;
    } else if (chunk.name == kPlte) {
      if (chunk.body.empty() || chunk.body.size() % 3 != 0 || chunk.body.size() > 768) {
        return corrupt_png("PLTE has a wrong length");
      }
      palette = true;
    } else if (chunk.name == kIdat) {
      if (layout.color_type == kPalette && !palette) return corrupt_png("its palette is missing");
      data_bytes += chunk.body.size();
    } else if (chunk.name == kTrns && is_transparency(chunk.body, layout)) {
      layout.transparency = chunk.body;
    } else if (chunk.name == kExif) {
      layout.exif = chunk.body;
    } else if (has_keyword(chunk, kRawExif)) {
      layout.raw_exif = chunk;
    } else if (has_keyword(chunk, kXmp)) {
      layout.xmp = chunk;
    } else if (chunk.name == kIend) {
      if (data_bytes == 0) return corrupt_png("it has no image data");
      if (!can_hold(data_bytes, layout)) {
        return corrupt_png(std::to_string(data_bytes) + " bytes of data cannot hold the " +
                           std::to_string(layout.width) + "x" + std::to_string(layout.height) +
                           " pixels that its header claims");
      }
      return layout;
    }
  }
  return truncated("PNG", "end (IEND)", bytes.size());
}

}  // namespace spdld::media

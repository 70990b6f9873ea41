// SPDX-License-Identifier: Apache-2.0
#include "media/image/image_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "base/text/foreign_names.h"
#include "media/bytes/byte_order.h"
#include "media/bytes/seen_bytes.h"

namespace spdld::media {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kJpegMagic = "\xFF\xD8\xFF"sv;
constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1A\n"sv;
constexpr std::string_view kGifMagic = "GIF8"sv;
constexpr std::string_view kBmpMagic = "BM"sv;

constexpr std::string_view kRiffMagic = "RIFF"sv;
constexpr std::string_view kWebpMagic = "WEBP"sv;
constexpr std::array kTiffMagics = {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv};

constexpr std::string_view kRead = "JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF";

bool has_magic(std::string_view bytes, std::string_view magic) {
  const std::size_t length = std::min(bytes.size(), magic.size());
  return bytes.substr(0, length) == magic.substr(0, length);
}

// Other files are RIFFs, too.
bool is_webp(std::string_view head) {
  constexpr std::size_t kMagicAt = 8;
  if (!has_magic(head, kRiffMagic)) return false;
  return head.size() <= kMagicAt || has_magic(head.substr(kMagicAt), kWebpMagic);
}

// Whether a brand that the file names first or says to be compatible with is AVIF's, of images or
// of sequences of them.
bool is_avif(std::span<const std::byte> bytes) {
  constexpr std::size_t kBrandsAt = 8;
  const std::string_view text = text_of(bytes);
  if (text.size() < kBrandsAt || text.substr(4, 4) != "ftyp") return false;
  if (has_magic(text.substr(kBrandsAt), "avif"sv)) return true;
  const std::size_t end = std::min<std::size_t>(be32(bytes, 0), text.size());
  constexpr std::size_t kVersionAt = 12;  // between the first brand and the others
  for (std::size_t at = kBrandsAt; at + 4 <= end; at += 4) {
    const std::string_view brand = text.substr(at, 4);
    if (at != kVersionAt && (brand == "avif" || brand == "avis")) return true;
  }
  return false;
}

}  // namespace

Result<ImageFormat> sniff_image(std::span<const std::byte> bytes) {
  if (bytes.empty()) return error(Code::kDataLoss, "the file is empty: 0 bytes");
  const std::string_view head = text_of(bytes).substr(0, 16);
  if (has_magic(head, kJpegMagic)) return ImageFormat::kJpeg;
  if (has_magic(head, kPngMagic)) return ImageFormat::kPng;
  if (is_webp(head)) return ImageFormat::kWebp;
  if (has_magic(head, kGifMagic)) return ImageFormat::kGif;
  if (has_magic(head, kBmpMagic)) return ImageFormat::kBmp;
  for (const std::string_view magic : kTiffMagics)
    if (has_magic(head, magic)) return ImageFormat::kTiff;
  if (is_avif(bytes)) return ImageFormat::kAvif;
  const ForeignFormat* const foreign = foreign_content(text_of(bytes).substr(0, kForeignHead));
  const std::string seen = " (first bytes " + seen_bytes(head) + "); decode_image reads ";
  if (foreign == nullptr)
    return error(Code::kInvalidArgument, "not an image" + seen + std::string(kRead));
  return error(Code::kInvalidArgument, "this is " + std::string(foreign->name) + seen +
                                           std::string(kRead) + "; the file " +
                                           std::string(foreign->what));
}

}  // namespace spdld::media

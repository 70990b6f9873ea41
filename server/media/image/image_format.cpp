// SPDX-License-Identifier: Apache-2.0
#include "media/image/image_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

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

struct Signature {
  std::string_view name;
  std::size_t offset;
  std::string_view magic;
};

// What people have in image folders and we do not read; the longer signature first.
constexpr std::array kOthers = {
    Signature{"HEIF", 4, "ftyphei"sv},
    Signature{"HEIF", 4, "ftypmif1"sv},
    Signature{"MP4", 4, "ftyp"sv},
    Signature{"JPEG 2000", 4, "jP  "sv},
    Signature{"JPEG 2000", 0, "\xFF\x4F\xFF\x51"sv},
    Signature{"JPEG XL", 4, "JXL "sv},
    Signature{"JPEG XL", 0, "\xFF\x0A"sv},
    Signature{"PDF", 0, "%PDF"sv},
    Signature{"gzip", 0, "\x1F\x8B"sv},
    Signature{"ZIP", 0, "PK\x03\x04"sv},
    Signature{"HTML or XML", 0, "<"sv},
};

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

std::string_view guess(std::string_view bytes) {
  for (const Signature& other : kOthers) {
    if (bytes.size() >= other.offset + other.magic.size() &&
        bytes.substr(other.offset, other.magic.size()) == other.magic) {
      return other.name;
    }
  }
  return {};
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
  const std::string_view name = guess(head);
  return error(Code::kInvalidArgument,
               (name.empty() ? std::string("not an image") : "this is " + std::string(name)) +
                   " (first bytes " + seen_bytes(head) + "); decode_image reads " +
                   std::string(kRead));
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/format/png_text.h"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "media/bytes/byte_order.h"
#include "media/image/exif.h"

namespace spdld::media {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::size_t kMostText = std::size_t{1} << 20;
constexpr std::uint32_t kTextName = png_name("tEXt");
constexpr std::uint32_t kCompressedName = png_name("zTXt");
constexpr std::uint32_t kInternationalName = png_name("iTXt");

std::optional<std::string> inflated(std::string_view packed) {
  std::string text(std::min(kMostText, packed.size() * 8 + 1024), '\0');
  z_stream stream{};
  if (::inflateInit(&stream) != Z_OK) throw std::bad_alloc();
  // zlib only reads, but knows no const.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int result = Z_OK;
  while (result == Z_OK) {
    if (stream.total_out == text.size()) {
      if (text.size() == kMostText) break;
      text.resize(std::min(kMostText, text.size() * 2));
    }
    stream.next_out = reinterpret_cast<Bytef*>(text.data()) + stream.total_out;
    stream.avail_out = static_cast<uInt>(text.size() - stream.total_out);
    result = ::inflate(&stream, Z_NO_FLUSH);
  }
  text.resize(stream.total_out);
  ::inflateEnd(&stream);
  // Not to be taken for a text that is broken, which would turn the image another way.
  if (result == Z_MEM_ERROR) throw std::bad_alloc();
  if (result != Z_STREAM_END) return std::nullopt;
  return text;
}

// What stands before the next zero byte, which is taken off with it.
std::optional<std::string_view> take_word(std::string_view& text) {
  const std::size_t end = text.find('\0');
  if (end == text.npos) return std::nullopt;
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end + 1);
  return word;
}

// ImageMagick's way to put bytes into a text: an empty line, a name, a count, then hexadecimal
// digits over many lines.
std::vector<std::byte> raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  std::vector<std::byte> bytes;
  int high = -1;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return {};
    const int lower = std::tolower(static_cast<unsigned char>(c));
    const int digit = lower <= '9' ? lower - '0' : lower - 'a' + 10;
    if (high >= 0) bytes.push_back(static_cast<std::byte>(high << 4 | digit));
    high = high >= 0 ? -1 : digit;
  }
  return bytes;
}

// tiff:Orientation="6" or <tiff:Orientation>6.
std::optional<int> xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = xmp.find(kName); at != xmp.npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with('>')) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

std::optional<int> tiff_orientation(std::span<const std::byte> tiff) {
  constexpr std::string_view kPrefix = "Exif\0\0"sv;  // which a PNG's block may have, too
  while (text_of(tiff).starts_with(kPrefix)) tiff = tiff.subspan(kPrefix.size());
  return find_exif_orientation(tiff);
}

}  // namespace

std::optional<std::string> png_text(const PngChunk& chunk) {
  std::string_view text = text_of(chunk.body);
  if (!take_word(text)) return std::nullopt;
  bool packed = false;
  if (chunk.name == kCompressedName) {
    if (text.empty() || text[0] != 0) return std::nullopt;
    text.remove_prefix(1);
    packed = true;
  } else if (chunk.name == kInternationalName) {
    if (text.size() < 2 || text[1] != 0) return std::nullopt;
    packed = text[0] != 0;
    text.remove_prefix(2);
    if (!take_word(text) || !take_word(text)) return std::nullopt;  // language, translated keyword
  } else if (chunk.name != kTextName) {
    return std::nullopt;
  }
  if (packed) return inflated(text);
  if (text.size() > kMostText) return std::nullopt;
  return std::string(text);
}

int png_orientation(const PngLayout& layout) {
  std::optional<int> found;
  if (!layout.exif.empty()) {
    found = tiff_orientation(layout.exif);
  } else if (layout.raw_exif.name != 0) {
    if (const auto text = png_text(layout.raw_exif)) found = tiff_orientation(raw_profile(*text));
  }
  if (!found && layout.xmp.name != 0) {
    if (const auto text = png_text(layout.xmp)) found = xmp_orientation(*text);
  }
  return found && *found >= 1 && *found <= 8 ? *found : 1;
}

}  // namespace spdld::media

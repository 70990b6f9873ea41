// SPDX-License-Identifier: Apache-2.0
#include "media/format/bmp_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

constexpr std::size_t kFileHeaderBytes = 14;
constexpr unsigned kOs2HeaderBytes = 12;
constexpr unsigned kFirstHeaderBytes = 40;
constexpr std::array kHeaderSizes = {kOs2HeaderBytes, kFirstHeaderBytes, 52U, 56U, 64U, 108U, 124U};

constexpr std::uint32_t kRle8 = 1;
constexpr std::uint32_t kRle4 = 2;
constexpr std::uint32_t kBitFields = 3;

// What a header says, whichever of the versions it is.
struct Header {
  std::uint32_t bytes = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;  // negative: top-down
  std::uint32_t bits = 0;
  std::uint32_t compression = 0;
  std::uint32_t colors = 0;  // in the palette; 0: as many as there can be
  std::uint32_t data_offset = 0;
};

struct FieldMasks {
  unsigned bits;
  BmpMasks masks;
  BmpLayout::Fields fields;
};

constexpr std::array kMasks = {
    FieldMasks{16, {0x7C00, 0x03E0, 0x001F}, BmpLayout::Fields::k555},
    FieldMasks{16, {0xF800, 0x07E0, 0x001F}, BmpLayout::Fields::k565},
    FieldMasks{16, {0x0F00, 0x00F0, 0x000F}, BmpLayout::Fields::k444},
    FieldMasks{24, {0xFF0000, 0x00FF00, 0x0000FF}, BmpLayout::Fields::kNone},
    FieldMasks{32, {0x00FF0000, 0x0000FF00, 0x000000FF}, BmpLayout::Fields::kBgrx},
    FieldMasks{32, {0xFF000000, 0x00FF0000, 0x0000FF00}, BmpLayout::Fields::kXbgr},
    FieldMasks{32, {0x000000FF, 0x0000FF00, 0x00FF0000}, BmpLayout::Fields::kRgbx},
    FieldMasks{32, {0x0000FF00, 0x00FF0000, 0xFF000000}, BmpLayout::Fields::kXrgb},
};

detail::Failure no_header(std::span<const std::byte> bytes) {
  return truncated("BMP", "whole header", bytes.size());
}

Result<Header> read_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kFileHeaderBytes + 4) return no_header(bytes);
  Header header;
  header.data_offset = le32(bytes, 10);
  const auto info = bytes.subspan(kFileHeaderBytes);
  header.bytes = le32(info, 0);
  if (std::find(kHeaderSizes.begin(), kHeaderSizes.end(), header.bytes) == kHeaderSizes.end())
    return unsupported("BMP", "a header of " + std::to_string(header.bytes) + " bytes");
  if (info.size() < header.bytes) return no_header(bytes);
  std::uint32_t planes = 0;
  if (header.bytes == kOs2HeaderBytes) {
    header.width = le16(info, 4);
    header.height = le16(info, 6);
    planes = le16(info, 8);
    header.bits = le16(info, 10);
  } else {
    header.width = static_cast<std::int32_t>(le32(info, 4));
    header.height = static_cast<std::int32_t>(le32(info, 8));
    planes = le16(info, 12);
    header.bits = le16(info, 14);
    header.compression = le32(info, 16);
    header.colors = le32(info, 32);
  }
  if (header.width <= 0 || header.height == 0 || header.height == INT32_MIN)
    return corrupt("BMP", "impossible size " + std::to_string(header.width) + "x" +
                              std::to_string(header.height));
  if (planes != 1) return corrupt("BMP", std::to_string(planes) + " planes instead of one");
  if (header.data_offset < kFileHeaderBytes + header.bytes)
    return corrupt("BMP", "its pixels begin inside its header");
  return header;
}

Status read_coding(const Header& header, BmpLayout& layout) {
  layout.bits = header.bits;
  switch (header.bits) {
    case 1:
    case 4:
    case 8:
    case 16:
    case 24:
    case 32: break;
    default: return unsupported("BMP", std::to_string(header.bits) + " bits a pixel");
  }
  if (header.compression == kRle8 && header.bits == 8) {
    layout.coding = BmpLayout::Coding::kRle8;
  } else if (header.compression == kRle4 && header.bits == 4) {
    layout.coding = BmpLayout::Coding::kRle4;
  } else if (header.compression != 0 && (header.compression != kBitFields || header.bits <= 8)) {
    return unsupported("BMP", "compression " + std::to_string(header.compression) + " of " +
                                  std::to_string(header.bits) + " bits a pixel");
  }
  return {};
}

// Of the masks behind a first header, or in a later one.
Status read_fields(std::span<const std::byte> bytes, const Header& header, BmpLayout& layout) {
  if (header.compression != kBitFields) {
    if (header.bits == 16) layout.fields = BmpLayout::Fields::k555;
    if (header.bits == 32) layout.fields = BmpLayout::Fields::kBgrx;
    return {};
  }
  constexpr std::size_t kMasksAt = kFileHeaderBytes + kFirstHeaderBytes;
  if (bytes.size() < kMasksAt + 16) return no_header(bytes);
  const BmpMasks masks = {le32(bytes, kMasksAt), le32(bytes, kMasksAt + 4),
                          le32(bytes, kMasksAt + 8)};
  const auto* const found = std::find_if(
      kMasks.begin(), kMasks.end(),
      [&](const FieldMasks& known) { return known.bits == header.bits && known.masks == masks; });
  if (found == kMasks.end())
    return unsupported("BMP", "its colours lie in other bits than those of 555, 565, 444 or 888");
  layout.fields = found->fields;
  // A first header has masks for three.
  constexpr unsigned kFourMasks = 56;
  layout.alpha = header.bits == 32 && header.bytes >= kFourMasks && header.bytes != 64 &&
                 le32(bytes, kMasksAt + 12) != 0;
  return {};
}

Status read_palette(std::span<const std::byte> bytes, const Header& header, BmpLayout& layout) {
  const std::size_t begin = kFileHeaderBytes + header.bytes;
  if (header.data_offset > bytes.size()) return truncated("BMP", "pixels", bytes.size());
  const std::size_t entry = header.bytes == kOs2HeaderBytes ? 3 : 4;
  const std::size_t most = std::size_t{1} << header.bits;
  const std::size_t wanted = header.colors == 0 ? most : std::min<std::size_t>(header.colors, most);
  const std::size_t count = std::min(wanted, (header.data_offset - begin) / entry);
  if (count == 0) {
    layout.palette = gray_palette(static_cast<int>(header.bits));
    layout.gray = true;
    return {};
  }
  const Palette grays = gray_palette(static_cast<int>(header.bits));
  layout.palette = gray_palette(8);  // as Pillow has it for numbers beyond the palette's end
  layout.gray = true;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = begin + i * entry;
    PaletteColor& color = layout.palette[i];
    color.blue = std::to_integer<std::uint8_t>(bytes[at]);
    color.green = std::to_integer<std::uint8_t>(bytes[at + 1]);
    color.red = std::to_integer<std::uint8_t>(bytes[at + 2]);
    layout.gray = layout.gray && color.red == grays[i].red && color.green == grays[i].red &&
                  color.blue == grays[i].red;
  }
  return {};
}

// How many bytes of run-length coded data are codes of the picture: without the end of its last
// line, and without its own end. None: the data ends before the picture does.
std::optional<std::size_t> picture_bytes(const BmpLayout& layout) {
  const std::span<const std::byte> data = layout.data;
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  for (std::size_t at = 0; data.size() - at >= 2;) {
    const std::size_t begin = at;
    const auto count = std::to_integer<unsigned>(data[at]);
    const auto code = std::to_integer<unsigned>(data[at + 1]);
    at += 2;
    if (count > 0) {
      x += count;
    } else if (code == 0) {  // end of line
      x = 0;
      if (++y == layout.height) return begin;
    } else if (code == 1) {  // end of picture
      return begin;
    } else if (code == 2) {  // a step to the right and up
      if (data.size() - at < 2) break;
      x += std::to_integer<unsigned>(data[at]);
      y += std::to_integer<unsigned>(data[at + 1]);
      at += 2;
    } else {  // so many pixels as they are, filled up to a whole number of words
      const std::size_t bytes = layout.coding == BmpLayout::Coding::kRle4 ? (code + 1) / 2 : code;
      if (data.size() - at < bytes) break;
      at = std::min(at + (bytes + 1) / 2 * 2, data.size());
      x += code;
    }
    if (y + 1 == layout.height && x >= layout.width) return at;
  }
  return std::nullopt;
}

}  // namespace

BmpMasks BmpLayout::masks() const {
  return std::find_if(kMasks.begin(), kMasks.end(),
                      [&](const FieldMasks& known) { return known.fields == fields; })
      ->masks;
}

StoredPixels BmpLayout::stored() const {
  using Color = StoredPixels::Color;
  if (has_palette())
    return {.color = gray ? Color::kGray : Color::kPalette, .bits = static_cast<int>(bits)};
  return {.color = Color::kRgb,
          .alpha = alpha ? StoredPixels::Alpha::kChannel : StoredPixels::Alpha::kNone};
}

Result<BmpLayout> survey_bmp(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const Header header, read_header(bytes));
  BmpLayout layout;
  layout.width = static_cast<std::uint32_t>(header.width);
  layout.top_down = header.height < 0;
  layout.height = static_cast<std::uint32_t>(layout.top_down ? -header.height : header.height);
  SPDLD_TRY(read_coding(header, layout));
  SPDLD_TRY(read_fields(bytes, header, layout));
  if (layout.has_palette()) SPDLD_TRY(read_palette(bytes, header, layout));
  if (header.data_offset > bytes.size()) return truncated("BMP", "pixels", bytes.size());
  layout.data = bytes.subspan(header.data_offset);
  if (layout.coding == BmpLayout::Coding::kPlain) {
    // The last line need not be filled up.
    const std::uint64_t line = (std::uint64_t{layout.width} * layout.bits + 7) / 8;
    const std::uint64_t needed = layout.line_bytes() * (layout.height - 1) + line;
    if (layout.data.size() < needed) return truncated("BMP", "last pixels", bytes.size());
  } else {
    const std::optional<std::size_t> picture = picture_bytes(layout);
    if (!picture) return truncated("BMP", "last pixels", bytes.size());
    layout.data = layout.data.first(*picture);
  }
  return layout;
}

}  // namespace spdld::media

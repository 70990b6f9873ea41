// SPDX-License-Identifier: Apache-2.0
#include "media/format/gif_blocks.h"

#include <algorithm>
#include <string>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

constexpr std::size_t kScreenBytes = 13;
constexpr std::size_t kImageBytes = 9;
constexpr unsigned kExtension = 0x21;
constexpr unsigned kImage = 0x2C;
constexpr unsigned kTrailer = 0x3B;
constexpr unsigned kGraphicControl = 0xF9;
constexpr unsigned kHasPalette = 0x80;
constexpr unsigned kIsInterlaced = 0x40;

// Goes over the file from its beginning. What is asked for beyond the end is not given.
class GifWalk {
 public:
  explicit GifWalk(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::optional<std::span<const std::byte>> take(std::size_t count) {
    if (bytes_.size() - at_ < count) return std::nullopt;
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }

  std::optional<unsigned> take_byte() {
    const auto byte = take(1);
    if (!byte) return std::nullopt;
    return std::to_integer<unsigned>(byte->front());
  }

  // Blocks, each with its length before it, up to an empty one. The first one that is not empty is
  // `first`.
  bool take_blocks(std::span<const std::byte>& first) {
    first = {};
    for (;;) {
      const auto length = take_byte();
      if (!length) return false;
      if (*length == 0) return true;
      const auto block = take(*length);
      if (!block) return false;
      if (first.empty()) first = *block;
    }
  }

  std::size_t at() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

// Numbers beyond the palette's end are grays, as Pillow has them.
void read_palette(std::span<const std::byte> colors, GifLayout& layout) {
  layout.palette = gray_palette(8);
  layout.gray = true;
  for (std::size_t i = 0; i < colors.size() / 3; ++i) {
    PaletteColor& color = layout.palette[i];
    color.red = std::to_integer<std::uint8_t>(colors[3 * i]);
    color.green = std::to_integer<std::uint8_t>(colors[3 * i + 1]);
    color.blue = std::to_integer<std::uint8_t>(colors[3 * i + 2]);
    layout.gray = layout.gray && color.red == i && color.green == i && color.blue == i;
  }
}

class Survey {
 public:
  explicit Survey(std::span<const std::byte> bytes) : bytes_(bytes), walk_(bytes) {}

  Result<GifLayout> run() {
    const auto screen = walk_.take(kScreenBytes);
    if (!screen) return truncated("GIF", "whole header", bytes_.size());
    layout_.canvas = {static_cast<int>(le16(*screen, 6)), static_cast<int>(le16(*screen, 8))};
    SPDLD_TRY(take_palette(std::to_integer<unsigned>((*screen)[10])));
    bool there = false;
    for (;;) {
      const auto label = walk_.take_byte();
      if (!label) return no_end();
      if (*label == kTrailer) break;
      if (*label == kExtension) {
        SPDLD_TRY(take_extension(!there));
      } else if (*label == kImage) {
        SPDLD_TRY(take_image(!there));
        there = true;
      } else if (there) {
        break;  // nobody looks what stands behind the first image
      } else if (*label != 0) {
        return corrupt("GIF", "unknown block " + std::to_string(*label));
      }
    }
    if (!there) return corrupt("GIF", "it has no image");
    if (layout_.transparent) layout_.palette[*layout_.transparent].alpha = 0;
    return layout_;
  }

 private:
  detail::Failure no_end() const { return truncated("GIF", "end", bytes_.size()); }

  Status take_palette(unsigned flags) {
    if ((flags & kHasPalette) == 0) {
      if (!has_palette_) read_palette({}, layout_);
      return {};
    }
    const unsigned bits = (flags & 7) + 1;
    const auto colors = walk_.take(std::size_t{3} << bits);
    if (!colors) return no_end();
    read_palette(*colors, layout_);
    layout_.palette_bits = static_cast<int>(bits);
    has_palette_ = true;
    return {};
  }

  Status take_extension(bool counts) {
    const auto label = walk_.take_byte();
    std::span<const std::byte> block;
    if (!label || !walk_.take_blocks(block)) return no_end();
    if (!counts || *label != kGraphicControl || block.size() < 4) return {};
    if ((std::to_integer<unsigned>(block[0]) & 1) != 0)
      layout_.transparent = std::to_integer<std::uint8_t>(block[3]);
    return {};
  }

  Status take_image(bool counts) {
    const auto header = walk_.take(kImageBytes);
    if (!header) return no_end();
    const auto flags = std::to_integer<unsigned>((*header)[8]);
    if (!counts) {
      const std::size_t colors =
          (flags & kHasPalette) != 0 ? std::size_t{3} << ((flags & 7) + 1) : 0;
      std::span<const std::byte> block;
      if (!walk_.take(colors + 1) || !walk_.take_blocks(block)) return no_end();
      return {};
    }
    Rect& image = layout_.image;
    image = {static_cast<int>(le16(*header, 0)), static_cast<int>(le16(*header, 2)),
             static_cast<int>(le16(*header, 4)), static_cast<int>(le16(*header, 6))};
    if (image.width == 0 || image.height == 0)
      return corrupt("GIF", "impossible size " + std::to_string(image.width) + "x" +
                                std::to_string(image.height));
    layout_.canvas.width = std::max(layout_.canvas.width, image.x + image.width);
    layout_.canvas.height = std::max(layout_.canvas.height, image.y + image.height);
    layout_.interlaced = (flags & kIsInterlaced) != 0;
    SPDLD_TRY(take_palette(flags));
    const std::size_t begin = walk_.at();
    std::span<const std::byte> block;
    if (!walk_.take(1) || !walk_.take_blocks(block)) return no_end();
    layout_.data = bytes_.subspan(begin, walk_.at() - begin);
    return check_data();
  }

  // A code, of three bits at least, stands for at most as many pixels as there are codes.
  Status check_data() const {
    constexpr std::uint64_t kMostPixels = 4096;
    const std::uint64_t pixels = static_cast<std::uint64_t>(layout_.image.width) *
                                 static_cast<std::uint64_t>(layout_.image.height);
    if (pixels <= layout_.data.size() * kMostPixels) return {};
    return corrupt("GIF", std::to_string(layout_.data.size()) + " bytes of data cannot hold the " +
                              std::to_string(layout_.image.width) + "x" +
                              std::to_string(layout_.image.height) +
                              " pixels that its header claims");
  }

  std::span<const std::byte> bytes_;
  GifWalk walk_;
  GifLayout layout_;
  bool has_palette_ = false;
};

}  // namespace

StoredPixels GifLayout::stored() const {
  using Color = StoredPixels::Color;
  using Alpha = StoredPixels::Alpha;
  return {.color = gray ? Color::kGray : Color::kPalette,
          .bits = gray ? 8 : palette_bits,
          .alpha = transparent ? Alpha::kKey : Alpha::kNone};
}

Result<GifLayout> survey_gif(std::span<const std::byte> bytes) { return Survey(bytes).run(); }

}  // namespace spdld::media

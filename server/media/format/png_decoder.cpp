// SPDX-License-Identifier: Apache-2.0
#include "media/format/png_decoder.h"

#include <algorithm>
#include <cstring>

#include "media/format/png_text.h"

namespace spdld::media {
namespace {

constexpr unsigned kPaletteType = 3;  // a colour type

StoredPixels stored_pixels(const PngLayout& layout) {
  using Color = StoredPixels::Color;
  using Alpha = StoredPixels::Alpha;
  StoredPixels pixels{.bits = static_cast<int>(layout.bit_depth)};
  const bool gray = layout.color_type == 0 || layout.color_type == 4;
  pixels.color = layout.color_type == kPaletteType ? Color::kPalette
                 : gray                            ? Color::kGray
                                                   : Color::kRgb;
  if (layout.color_type >= 4) pixels.alpha = Alpha::kChannel;
  if (!layout.transparency.empty()) pixels.alpha = Alpha::kKey;
  return pixels;
}

// FFmpeg gives samples of less than 8 bits stretched to 8, but for a single bit.
int stretch_of(const PngLayout& layout) {
  return layout.bit_depth < 8 ? 255 / ((1 << layout.bit_depth) - 1) : 1;
}

// Of gray or RGB: the samples that are transparent, as FFmpeg gives them.
std::array<std::uint16_t, 3> key_of(const PngLayout& layout) {
  const std::span<const std::byte> body = layout.transparency;
  const unsigned most = (1U << layout.bit_depth) - 1;
  std::array<std::uint16_t, 3> key{};
  for (std::size_t c = 0; c < 3; ++c) {
    const std::size_t at = body.size() == 6 ? 2 * c : 0;
    const unsigned value =
        std::to_integer<unsigned>(body[at]) << 8 | std::to_integer<unsigned>(body[at + 1]);
    key[c] = static_cast<std::uint16_t>((value & most) * static_cast<unsigned>(stretch_of(layout)));
  }
  return key;
}

// FFmpeg decodes into a frame of the whole image, in the format of the file; samples of less than a
// byte get one. Its packet is a copy of the file's data.
std::uint64_t bytes_to_read(const PngLayout& layout, std::uint64_t data_bytes) {
  const std::uint64_t pixel_bytes = std::max<std::uint64_t>(1, png_pixel_bits(layout) / 8);
  return FrameDecoder::frame_bytes(layout.width, layout.height, pixel_bytes) + data_bytes * 5 / 4;
}

Palette palette_of(const AVFrame& frame, const PngLayout& layout) {
  Palette palette;
  for (std::size_t i = 0; i < palette.size(); ++i) {
    std::uint32_t argb = 0;
    std::memcpy(&argb, frame.data[1] + i * sizeof(argb), sizeof(argb));
    palette[i] = {static_cast<std::uint8_t>(argb >> 16), static_cast<std::uint8_t>(argb >> 8),
                  static_cast<std::uint8_t>(argb)};
    if (i < layout.transparency.size())
      palette[i].alpha = std::to_integer<std::uint8_t>(layout.transparency[i]);
  }
  return palette;
}

}  // namespace

Result<RasterInfo> PngDecoder::open(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(layout_, survey_png(bytes));
  SPDLD_TRY(limits_.check_pixels(layout_.width, layout_.height));
  SPDLD_TRY(codec_.check_size(layout_.width, layout_.height));
  SPDLD_TRY(codec_.prepare());
  file_ = bytes;
  packet_bytes_ = layout_.needed_bytes + kPngSignatureBytes;
  read_bytes_ = bytes_to_read(layout_, packet_bytes_);
  return RasterInfo{{static_cast<int>(layout_.width), static_cast<int>(layout_.height)},
                    Orientation::from_exif(png_orientation(layout_)),
                    stored_pixels(layout_)};
}

Status PngDecoder::read(const Rect& region, RowSink& rows) {
  SPDLD_TRY(fill_packet());
  SPDLD_TRY(codec_.decode(read_bytes_));
  const AVFrame& frame = codec_.frame();
  Status status;
  if (frame.format == AV_PIX_FMT_PAL8) {
    give_numbers(region, rows);
  } else if (frame.format == AV_PIX_FMT_MONOBLACK) {
    give_bits(region, rows);
  } else {
    DecodedRows decoded{.samples = sample_layout(frame.format), .stretch = stretch_of(layout_)};
    if (!layout_.transparency.empty()) decoded.key = key_of(layout_);
    if (decoded.samples.step == 0) {
      status = {Code::kDataLoss, "corrupt PNG: its pixels are not those of its header"};
    } else {
      give_rows({mode_, decoded}, frame.data[0], frame.linesize[0], region, row_, rows);
    }
  }
  codec_.release();
  return status;
}

void PngDecoder::give_numbers(const Rect& region, RowSink& rows) {
  const AVFrame& frame = codec_.frame();
  palette_ = palette_of(frame, layout_);
  const DecodedRows decoded{.kind = DecodedRows::Kind::kNumbers, .palette = &palette_};
  give_rows({mode_, decoded}, frame.data[0], frame.linesize[0], region, row_, rows);
}

// Gray of one bit.
void PngDecoder::give_bits(const Rect& region, RowSink& rows) {
  const AVFrame& frame = codec_.frame();
  palette_ = gray_palette(1);
  if (!layout_.transparency.empty()) palette_[key_of(layout_)[0] == 0 ? 0 : 1].alpha = 0;
  const RowConverter converter(mode_, {.kind = DecodedRows::Kind::kNumbers, .palette = &palette_});
  RowGiver giver(converter, region.width, row_, rows);
  auto* numbers =
      reinterpret_cast<std::uint8_t*>(numbers_.resize(static_cast<std::size_t>(region.width)));
  for (int y = 0; y < region.height; ++y) {
    const std::uint8_t* bits =
        frame.data[0] + static_cast<std::ptrdiff_t>(region.y + y) * frame.linesize[0];
    unpack_numbers(bits, region.x, region.width, 1, numbers);
    giver.row(y, numbers);
  }
}

Status PngDecoder::fill_packet() {
  SPDLD_ASSIGN(std::uint8_t* const packet, codec_.begin_packet(packet_bytes_));
  std::uint8_t* at = packet;
  std::memcpy(at, file_.data(), kPngSignatureBytes);
  at += kPngSignatureBytes;
  PngChunks chunks(file_);
  PngChunk chunk;
  while (at < packet + packet_bytes_ && chunks.next(chunk)) {
    if (!png_needs(chunk.name)) continue;
    std::memcpy(at, chunk.whole.data(), chunk.whole.size());
    at += chunk.whole.size();
  }
  return {};
}

}  // namespace spdld::media

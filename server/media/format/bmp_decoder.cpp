// SPDX-License-Identifier: Apache-2.0
#include "media/format/bmp_decoder.h"

#include <algorithm>
#include <cstring>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

using Fields = BmpLayout::Fields;

constexpr std::uint32_t kWrittenHeaderBytes = 14 + 40;

std::uint32_t compression_of(const BmpLayout& layout) {
  if (layout.coding == BmpLayout::Coding::kRle8) return 1;
  if (layout.coding == BmpLayout::Coding::kRle4) return 2;
  return layout.fields == Fields::kNone ? 0 : 3;
}

// Behind the header come masks or a palette, which must be there and is not used.
std::uint32_t data_offset(const BmpLayout& layout) {
  if (layout.has_palette()) return kWrittenHeaderBytes + (4U << layout.bits);
  return kWrittenHeaderBytes + (layout.fields == Fields::kNone ? 0 : 12);
}

std::uint64_t data_bytes(const BmpLayout& layout) {
  if (layout.coding != BmpLayout::Coding::kPlain) return layout.data.size() + 2;
  return layout.line_bytes() * layout.height;
}

void put_header(const BmpLayout& layout, std::uint32_t file_bytes, std::uint8_t* out) {
  std::memset(out, 0, data_offset(layout));
  out[0] = 'B';
  out[1] = 'M';
  put_le32(file_bytes, out + 2);
  put_le32(data_offset(layout), out + 10);
  put_le32(40, out + 14);
  put_le32(layout.width, out + 18);
  put_le32(layout.height, out + 22);
  put_le16(1, out + 26);
  put_le16(layout.bits, out + 28);
  put_le32(compression_of(layout), out + 30);
  if (layout.fields == Fields::kNone) return;
  const BmpMasks masks = layout.masks();
  put_le32(masks.red, out + kWrittenHeaderBytes);
  put_le32(masks.green, out + kWrittenHeaderBytes + 4);
  put_le32(masks.blue, out + kWrittenHeaderBytes + 8);
}

// `count` pixels of 16 bits to RGB, stretched to 8 bits as Pillow does.
void stretch(const std::uint8_t* pixels, int count, const BmpMasks& masks, std::uint8_t* rgb) {
  const int green_shift = __builtin_ctz(masks.green);
  const int red_shift = __builtin_ctz(masks.red);
  const unsigned most_red = masks.red >> red_shift;
  const unsigned most_green = masks.green >> green_shift;
  for (int x = 0; x < count; ++x, rgb += 3) {
    std::uint16_t pixel = 0;
    std::memcpy(&pixel, pixels + 2 * static_cast<std::ptrdiff_t>(x), sizeof(pixel));
    rgb[0] = static_cast<std::uint8_t>((pixel >> red_shift & most_red) * 255 / most_red);
    rgb[1] = static_cast<std::uint8_t>((pixel >> green_shift & most_green) * 255 / most_green);
    rgb[2] = static_cast<std::uint8_t>((pixel & masks.blue) * 255 / masks.blue);
  }
}

}  // namespace

Result<RasterInfo> BmpDecoder::open(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(layout_, survey_bmp(bytes));
  SPDLD_TRY(limits_.check_pixels(layout_.width, layout_.height));
  SPDLD_TRY(codec_.check_size(layout_.width, layout_.height));
  SPDLD_TRY(codec_.prepare());
  read_bytes_ =
      FrameDecoder::frame_bytes(layout_.width, layout_.height, std::max(1U, layout_.bits / 8)) +
      (data_offset(layout_) + data_bytes(layout_)) * 5 / 4;
  return RasterInfo{{static_cast<int>(layout_.width), static_cast<int>(layout_.height)},
                    Orientation(),
                    layout_.stored()};
}

Status BmpDecoder::read(const Rect& region, RowSink& rows) {
  SPDLD_TRY(fill_packet());
  SPDLD_TRY(codec_.decode(read_bytes_));
  const AVFrame& frame = codec_.frame();
  // The codec was told that the lines come from the bottom up.
  std::ptrdiff_t stride = frame.linesize[0];
  const std::uint8_t* data = frame.data[0];
  if (layout_.top_down) {
    data += (static_cast<std::ptrdiff_t>(layout_.height) - 1) * stride;
    stride = -stride;
  }
  if (layout_.bits == 16) {
    give_fields(data, stride, region, rows);
  } else if (layout_.has_palette()) {
    const DecodedRows decoded{.kind = DecodedRows::Kind::kNumbers, .palette = &layout_.palette};
    give_rows({mode_, decoded}, data, stride, region, row_, rows);
  } else {
    DecodedRows decoded{.samples = sample_layout(frame.format)};
    if (!layout_.alpha) decoded.samples.alpha = -1;
    give_rows({mode_, decoded}, data, stride, region, row_, rows);
  }
  codec_.release();
  return {};
}

void BmpDecoder::give_fields(const std::uint8_t* data, std::ptrdiff_t stride, const Rect& region,
                             RowSink& rows) {
  const auto width = static_cast<std::size_t>(region.width);
  auto* rgb = reinterpret_cast<std::uint8_t*>(rgb_.resize(width * 3));
  const RowConverter converter(mode_, {.samples = {.step = 3, .green = 1, .blue = 2}});
  RowGiver giver(converter, region.width, row_, rows);
  const BmpMasks masks = layout_.masks();
  for (int y = 0; y < region.height; ++y) {
    stretch(data + (region.y + y) * stride + 2 * static_cast<std::ptrdiff_t>(region.x),
            region.width, masks, rgb);
    giver.row(y, rgb);
  }
}

Status BmpDecoder::fill_packet() {
  const std::uint64_t offset = data_offset(layout_);
  const std::uint64_t wanted = data_bytes(layout_);
  SPDLD_ASSIGN(std::uint8_t* const packet, codec_.begin_packet(offset + wanted));
  put_header(layout_, static_cast<std::uint32_t>(offset + wanted), packet);
  const std::size_t there = std::min<std::uint64_t>(wanted, layout_.data.size());
  std::memcpy(packet + offset, layout_.data.data(), there);
  std::memset(packet + offset + there, 0, wanted - there);
  // The end of a run-length coded picture. FFmpeg's decoder wants it nowhere but here.
  if (layout_.coding != BmpLayout::Coding::kPlain) packet[offset + wanted - 1] = 1;
  return {};
}

}  // namespace spdld::media

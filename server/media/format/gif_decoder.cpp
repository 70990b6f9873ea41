// SPDX-License-Identifier: Apache-2.0
#include "media/format/gif_decoder.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

constexpr std::size_t kWrittenScreenBytes = 13;
constexpr std::size_t kWrittenImageBytes = 10;
constexpr std::size_t kPaletteBytes = 768;
constexpr std::size_t kWrittenBytes = kWrittenScreenBytes + kWrittenImageBytes + kPaletteBytes;

// FFmpeg's pixels are native 32-bit numbers: alpha, red, green, blue. Those that it was given no
// code for have no alpha.
std::uint32_t pixel_at(const AVFrame& frame, int x, int y) {
  std::uint32_t argb = 0;
  std::memcpy(&argb,
              frame.data[0] + static_cast<std::ptrdiff_t>(y) * frame.linesize[0] +
                  static_cast<std::ptrdiff_t>(x) * 4,
              sizeof(argb));
  return argb;
}

}  // namespace

Result<RasterInfo> GifDecoder::open(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(layout_, survey_gif(bytes));
  SPDLD_TRY(limits_.check_pixels(layout_.canvas.width, layout_.canvas.height));
  SPDLD_TRY(codec_.check_size(layout_.image.width, layout_.image.height));
  SPDLD_TRY(codec_.prepare());
  read_bytes_ = FrameDecoder::frame_bytes(static_cast<std::uint64_t>(layout_.image.width),
                                          static_cast<std::uint64_t>(layout_.image.height), 4) +
                (kWrittenBytes + layout_.data.size()) * 5 / 4;
  return RasterInfo{layout_.canvas, Orientation(), layout_.stored()};
}

Status GifDecoder::read(const Rect& region, RowSink& rows) {
  SPDLD_TRY(fill_packet());
  SPDLD_TRY(codec_.decode(read_bytes_));
  if (Status status = check_rows(); !status.ok()) {
    codec_.release();
    return status;
  }
  auto* numbers =
      reinterpret_cast<std::uint8_t*>(numbers_.resize(static_cast<std::size_t>(region.width)));
  RowGiver giver({mode_, {.kind = DecodedRows::Kind::kNumbers, .palette = &layout_.palette}},
                 region.width, row_, rows);
  for (int y = 0; y < region.height; ++y) {
    collect(region, region.y + y, numbers);
    giver.row(y, numbers);
  }
  codec_.release();
  return {};
}

Status GifDecoder::check_rows() const {
  for (int y = 0; y < layout_.image.height; ++y) {
    if (pixel_at(codec_.frame(), 0, y) >> 24 == 0)
      return corrupt("GIF", "its image data ends before its last row");
  }
  return {};
}

void GifDecoder::collect(const Rect& region, int y, std::uint8_t* numbers) const {
  const Rect& image = layout_.image;
  std::fill_n(numbers, region.width, layout_.transparent.value_or(0));
  if (y < image.y || y >= image.y + image.height) return;
  const int begin = std::max(region.x, image.x);
  const int end = std::min(region.x + region.width, image.x + image.width);
  for (int x = begin; x < end; ++x) {
    numbers[x - region.x] =
        static_cast<std::uint8_t>(pixel_at(codec_.frame(), x - image.x, y - image.y));
  }
}

Status GifDecoder::fill_packet() {
  SPDLD_ASSIGN(std::uint8_t * at, codec_.begin_packet(kWrittenBytes + layout_.data.size()));
  constexpr std::string_view kSignature = "GIF89a";
  std::copy(kSignature.begin(), kSignature.end(), at);
  std::memset(at + kSignature.size(), 0, kWrittenBytes - kSignature.size());
  const auto width = static_cast<std::uint32_t>(layout_.image.width);
  const auto height = static_cast<std::uint32_t>(layout_.image.height);
  put_le16(width, at + 6);
  put_le16(height, at + 8);
  at += kWrittenScreenBytes;
  at[0] = 0x2C;
  put_le16(width, at + 5);
  put_le16(height, at + 7);
  at[9] = static_cast<std::uint8_t>(layout_.interlaced ? 0xC7 : 0x87);  // a palette of 8 bits
  at += kWrittenImageBytes;
  for (int i = 0; i < 256; ++i, at += 3) std::memset(at, i, 3);
  std::memcpy(at, layout_.data.data(), layout_.data.size());
  return {};
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/png_decoder.h"

extern "C" {
#include <libavutil/imgutils.h>
}

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/no_memory.h"
#include "media/png_chunks.h"
#include "media/png_text.h"

namespace spdld::media {
namespace {

// FFmpeg passes on zlib's Z_MEM_ERROR as a failure of an unknown library, and says so only here.
constexpr std::string_view kInflateHadNoMemory = "inflate returned error -4";

constexpr std::size_t kAllocationSlack = 64;

struct Rgb {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
};

// Where a pixel's samples lie: `step` bytes a pixel, red, green and blue (or gray, three times) at
// these offsets. 16-bit samples are big-endian, so that their high byte comes first.
struct SampleLayout {
  int step;
  int red;
  int green;
  int blue;
};

constexpr SampleLayout kNoLayout{0, 0, 0, 0};

SampleLayout layout_of(int format) {
  switch (format) {
    case AV_PIX_FMT_GRAY8: return {1, 0, 0, 0};
    case AV_PIX_FMT_YA8:
    case AV_PIX_FMT_GRAY16BE: return {2, 0, 0, 0};
    case AV_PIX_FMT_YA16BE: return {4, 0, 0, 0};
    case AV_PIX_FMT_RGB24: return {3, 0, 1, 2};
    case AV_PIX_FMT_RGBA: return {4, 0, 1, 2};
    case AV_PIX_FMT_RGB48BE: return {6, 0, 2, 4};
    case AV_PIX_FMT_RGBA64BE: return {8, 0, 2, 4};
    default: return kNoLayout;
  }
}

template <typename Pixel>
void write_row(int width, ColorMode mode, const Pixel& pixel, std::uint8_t* out) {
  for (int x = 0; x < width; ++x) {
    const Rgb color = pixel(x);
    if (mode == ColorMode::kGray) {
      *out++ = luma(color.red, color.green, color.blue);
    } else {
      *out++ = color.red;
      *out++ = color.green;
      *out++ = color.blue;
    }
  }
}

// Pixels [x, x + width) of row `y`; luma() of three equal samples is that sample, so gray needs no
// case of its own.
void convert_row(const AVFrame& frame, int x, int y, int width, ColorMode mode, std::uint8_t* out) {
  const std::uint8_t* row = frame.data[0] + static_cast<std::ptrdiff_t>(y) * frame.linesize[0];
  if (frame.format == AV_PIX_FMT_PAL8) {
    const auto pixel = [&](int i) {
      std::uint32_t argb = 0;
      std::memcpy(&argb, frame.data[1] + std::size_t{row[x + i]} * sizeof(argb), sizeof(argb));
      return Rgb{static_cast<std::uint8_t>(argb >> 16), static_cast<std::uint8_t>(argb >> 8),
                 static_cast<std::uint8_t>(argb)};
    };
    write_row(width, mode, pixel, out);
  } else if (frame.format == AV_PIX_FMT_MONOBLACK) {
    const auto pixel = [&](int i) {
      const int bit = row[(x + i) / 8] >> (7 - (x + i) % 8) & 1;
      const auto gray = static_cast<std::uint8_t>(bit * 255);
      return Rgb{gray, gray, gray};
    };
    write_row(width, mode, pixel, out);
  } else {
    const SampleLayout layout = layout_of(frame.format);
    const auto pixel = [&](int i) {
      const std::uint8_t* at = row + static_cast<std::ptrdiff_t>(x + i) * layout.step;
      return Rgb{at[layout.red], at[layout.green], at[layout.blue]};
    };
    write_row(width, mode, pixel, out);
  }
}

bool readable(int format) {
  return format == AV_PIX_FMT_PAL8 || format == AV_PIX_FMT_MONOBLACK || layout_of(format).step != 0;
}

// FFmpeg decodes into a frame of the whole image, in the format of the file; samples of less than a
// byte get one. Its packet is a copy of the file's data.
std::uint64_t bytes_to_read(const PngLayout& layout, std::uint64_t data_bytes) {
  constexpr std::uint64_t kPadding = 64;  // columns and rows beyond the image
  const std::uint64_t pixel_bytes = std::max<std::uint64_t>(1, png_pixel_bits(layout) / 8);
  return (layout.width + kPadding) * (layout.height + kPadding) * pixel_bytes + data_bytes * 5 / 4;
}

// Whether the frame's own rows are what the sink wants.
bool is_mode(int format, ColorMode mode) {
  return format == (mode == ColorMode::kRgb ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_GRAY8);
}

}  // namespace

Result<RasterInfo> PngDecoder::open(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(const PngLayout layout, survey_png(bytes));
  SPDLD_TRY(limits_.check_pixels(layout.width, layout.height));
  if (av_image_check_size(layout.width, layout.height, 0, nullptr) < 0) {
    return error(Code::kResourceExhausted,
                 "PNG of " + std::to_string(layout.width) + "x" + std::to_string(layout.height) +
                     " pixels is larger than FFmpeg reads, whatever decode_image.max_pixels says");
  }
  SPDLD_TRY(prepare());
  file_ = bytes;
  needed_bytes_ = layout.needed_bytes + kPngSignatureBytes;
  read_bytes_ = bytes_to_read(layout, needed_bytes_);
  return RasterInfo{{static_cast<int>(layout.width), static_cast<int>(layout.height)},
                    Orientation::from_exif(png_orientation(layout))};
}

Status PngDecoder::prepare() {
  if (context_ != nullptr) return {};
  AvPtr<AVFrame> frame(av_frame_alloc());
  AvPtr<AVPacket> packet(av_packet_alloc());
  if (frame == nullptr || packet == nullptr) return no_memory("an FFmpeg frame");
  SPDLD_ASSIGN(context_, open_decoder("png"));
  frame_ = std::move(frame);
  packet_ = std::move(packet);
  return {};
}

Status PngDecoder::read(const Rect& region, RowSink& rows) {
  SPDLD_TRY(decode());
  const AVFrame& frame = *frame_;
  if (is_mode(frame.format, mode_)) {
    for (int y = 0; y < region.height; ++y) {
      rows.row(y, frame.data[0] + static_cast<std::ptrdiff_t>(region.y + y) * frame.linesize[0] +
                      static_cast<std::ptrdiff_t>(region.x) * channels_of(mode_));
    }
  } else {
    auto* row = reinterpret_cast<std::uint8_t*>(
        row_.resize(static_cast<std::size_t>(region.width) * channels_of(mode_)));
    for (int y = 0; y < region.height; ++y) {
      convert_row(frame, region.x, region.y + y, region.width, mode_, row);
      rows.row(y, row);
    }
  }
  av_frame_unref(frame_.get());
  return {};
}

Status PngDecoder::fill_packet() {
  const std::size_t size = needed_bytes_ + AV_INPUT_BUFFER_PADDING_SIZE;
  if (size > INT_MAX - kAllocationSlack) {
    return {Code::kResourceExhausted, "PNG of " + std::to_string(needed_bytes_) +
                                          " bytes is larger than FFmpeg reads at once"};
  }
  if (input_ == nullptr || input_->size < size) {
    // FFmpeg allocates nothing above INT_MAX, which is no lack of memory.
    const std::size_t grown = std::min<std::size_t>(size + size / 4, INT_MAX - kAllocationSlack);
    input_.reset(av_buffer_alloc(std::max(size, grown)));
    if (input_ == nullptr) return no_memory("the PNG file's data", size);
  }
  std::uint8_t* at = input_->data;
  std::memcpy(at, file_.data(), kPngSignatureBytes);
  at += kPngSignatureBytes;
  PngChunks chunks(file_);
  PngChunk chunk;
  while (at < input_->data + needed_bytes_ && chunks.next(chunk)) {
    if (!png_needs(chunk.name)) continue;
    std::memcpy(at, chunk.whole.data(), chunk.whole.size());
    at += chunk.whole.size();
  }
  std::memset(at, 0, AV_INPUT_BUFFER_PADDING_SIZE);

  packet_->buf = av_buffer_ref(input_.get());
  if (packet_->buf == nullptr) return no_memory("an FFmpeg packet");
  packet_->data = input_->data;
  packet_->size = static_cast<int>(needed_bytes_);
  // Without this flag FFmpeg takes an image of the same size as the one before for a difference to
  // it, and adds them up.
  packet_->flags = AV_PKT_FLAG_KEY;
  return {};
}

Status PngDecoder::decode() {
  SPDLD_TRY(fill_packet());
  FfmpegReports reports;
  int result = avcodec_send_packet(context_.get(), packet_.get());
  av_packet_unref(packet_.get());
  if (result >= 0) result = avcodec_receive_frame(context_.get(), frame_.get());
  if (result >= 0 && !reports.any() && readable(frame_->format)) return {};

  av_frame_unref(frame_.get());
  avcodec_flush_buffers(context_.get());
  if (result == AVERROR(ENOMEM) || (reports.any() && reports.first() == kInflateHadNoMemory))
    return no_memory("the pixels of a PNG", read_bytes_);
  return {Code::kDataLoss,
          "corrupt PNG: FFmpeg says: " + (reports.any() ? reports.first() : av_error_text(result))};
}

}  // namespace spdld::media

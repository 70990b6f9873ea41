// SPDX-License-Identifier: Apache-2.0
#include "media/format/frame_decoder.h"

extern "C" {
#include <libavutil/imgutils.h>
}

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "media/container/codecs.h"

namespace spdld::media {
namespace {

constexpr std::size_t kAllocationSlack = 64;

// FFmpeg passes on zlib's Z_MEM_ERROR as a failure of an unknown library, and says so only here.
constexpr std::string_view kInflateHadNoMemory = "inflate returned error -4";

}  // namespace

Status FrameDecoder::prepare() {
  if (context_ != nullptr) return {};
  SPDLD_CHECK(std::ranges::count(image_decoders(), std::string_view(codec_)) == 1);
  AvPtr<AVFrame> frame(av_frame_alloc());
  AvPtr<AVPacket> packet(av_packet_alloc());
  if (frame == nullptr || packet == nullptr) return no_memory("an FFmpeg frame");
  SPDLD_ASSIGN(context_, open_decoder(codec_));
  frame_ = std::move(frame);
  packet_ = std::move(packet);
  return {};
}

void FrameDecoder::fill_frames(std::uint8_t byte) {
  fill_ = byte;
  context_->opaque = &fill_;
  context_->get_buffer2 = [](AVCodecContext* context, AVFrame* frame, int flags) {
    const int result = avcodec_default_get_buffer2(context, frame, flags);
    for (int i = 0; result >= 0 && i < AV_NUM_DATA_POINTERS && frame->buf[i] != nullptr; ++i)
      std::memset(frame->buf[i]->data, *static_cast<std::uint8_t*>(context->opaque),
                  frame->buf[i]->size);
    return result;
  };
}

std::uint64_t FrameDecoder::frame_bytes(std::uint64_t width, std::uint64_t height,
                                        std::uint64_t pixel_bytes) {
  constexpr std::uint64_t kPadding = 64;
  return (width + kPadding) * (height + kPadding) * pixel_bytes;
}

Status FrameDecoder::check_size(std::int64_t width, std::int64_t height) const {
  if (width <= INT_MAX && height <= INT_MAX &&
      av_image_check_size(static_cast<unsigned>(width), static_cast<unsigned>(height), 0,
                          nullptr) >= 0)
    return {};
  return {Code::kResourceExhausted,
          std::string(format_) + " of " + std::to_string(width) + "x" + std::to_string(height) +
              " pixels is larger than FFmpeg reads, whatever decode_image.max_pixels says"};
}

Result<std::uint8_t*> FrameDecoder::begin_packet(std::uint64_t bytes) {
  SPDLD_CHECK(context_ != nullptr);
  if (bytes > INT_MAX - kAllocationSlack - AV_INPUT_BUFFER_PADDING_SIZE) {
    return error(Code::kResourceExhausted, std::string(format_) + " of " + std::to_string(bytes) +
                                               " bytes is larger than FFmpeg reads at once");
  }
  const std::size_t size = bytes + AV_INPUT_BUFFER_PADDING_SIZE;
  if (input_ == nullptr || input_->size < size) {
    // FFmpeg allocates nothing above INT_MAX, which is no lack of memory.
    const std::size_t grown = std::min<std::size_t>(size + size / 4, INT_MAX - kAllocationSlack);
    input_.reset();  // before there are both
    input_.reset(av_buffer_alloc(std::max(size, grown)));
    if (input_ == nullptr)
      return tl::unexpected<Status>(
          no_memory("the " + std::string(format_) + " file's data", size));
  }
  packet_bytes_ = bytes;
  std::memset(input_->data + bytes, 0, AV_INPUT_BUFFER_PADDING_SIZE);
  return input_->data;
}

Status FrameDecoder::decode(std::uint64_t frame_bytes) {
  packet_->buf = av_buffer_ref(input_.get());
  if (packet_->buf == nullptr) return no_memory("an FFmpeg packet");
  packet_->data = input_->data;
  packet_->size = static_cast<int>(packet_bytes_);
  // Without this flag FFmpeg takes a PNG of the same size as the one before for a difference to it,
  // and adds them up.
  packet_->flags = AV_PKT_FLAG_KEY;

  FfmpegReports reports;
  av_frame_unref(frame_.get());
  int result = avcodec_send_packet(context_.get(), packet_.get());
  av_packet_unref(packet_.get());
  if (result >= 0) result = avcodec_receive_frame(context_.get(), frame_.get());
  if (result >= 0 && !reports.any()) return {};

  av_frame_unref(frame_.get());
  avcodec_flush_buffers(context_.get());
  const std::string format(format_);
  if (result == AVERROR(ENOMEM) || (reports.any() && reports.first() == kInflateHadNoMemory))
    return no_memory("the pixels of a " + format, frame_bytes);
  return {Code::kDataLoss, "corrupt " + format + ": FFmpeg says: " +
                               (reports.any() ? reports.first() : av_error_text(result))};
}

SampleLayout sample_layout(int av_format) {
  switch (av_format) {
    case AV_PIX_FMT_GRAY8: return {.step = 1};
    case AV_PIX_FMT_YA8: return {.step = 2, .alpha = 1};
    case AV_PIX_FMT_RGB24: return {.step = 3, .green = 1, .blue = 2};
    case AV_PIX_FMT_BGR24: return {.step = 3, .red = 2, .green = 1};
    case AV_PIX_FMT_RGB0:
    case AV_PIX_FMT_RGBA: return {.step = 4, .green = 1, .blue = 2, .alpha = 3};
    case AV_PIX_FMT_BGR0:
    case AV_PIX_FMT_BGRA: return {.step = 4, .red = 2, .green = 1, .alpha = 3};
    case AV_PIX_FMT_0RGB:
    case AV_PIX_FMT_ARGB: return {.step = 4, .red = 1, .green = 2, .blue = 3, .alpha = 0};
    case AV_PIX_FMT_0BGR:
    case AV_PIX_FMT_ABGR: return {.step = 4, .red = 3, .green = 2, .blue = 1, .alpha = 0};
    case AV_PIX_FMT_GRAY16BE: return {.step = 2, .bytes = 2};
    case AV_PIX_FMT_YA16BE: return {.step = 4, .alpha = 2, .bytes = 2};
    case AV_PIX_FMT_RGB48BE: return {.step = 6, .green = 2, .blue = 4, .bytes = 2};
    case AV_PIX_FMT_RGBA64BE: return {.step = 8, .green = 2, .blue = 4, .alpha = 6, .bytes = 2};
    default: return {};
  }
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/video/frame_marks.h"

extern "C" {
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
}

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spdld::media {
namespace {

// In the memory of a frame each word at an address that is a multiple of this is the mark.
constexpr std::size_t kWord = sizeof(std::uint64_t);

int mark_buffers(AVCodecContext* context, AVFrame* frame, int flags) {
  const int result = avcodec_default_get_buffer2(context, frame, flags);
  for (int i = 0; result >= 0 && i < AV_NUM_DATA_POINTERS && frame->buf[i] != nullptr; ++i) {
    // FFmpeg aligns buffers for vectors.
    auto* const words = reinterpret_cast<std::uint64_t*>(frame->buf[i]->data);
    std::fill_n(words, frame->buf[i]->size / kWord,
                *static_cast<const std::uint64_t*>(context->opaque));
  }
  return result;
}

bool has_marked_word(const std::uint8_t* row, std::size_t bytes, std::uint64_t mark) {
  const std::size_t before = (kWord - reinterpret_cast<std::uintptr_t>(row) % kWord) % kWord;
  bool found = false;
  for (std::size_t at = before; at + kWord <= bytes; at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, row + at, kWord);
    found |= word == mark;
  }
  return found;
}

}  // namespace

void mark_frames(AVCodecContext& context, const std::uint64_t& mark) {
  context.opaque = const_cast<std::uint64_t*>(&mark);  // mark_buffers() only reads it
  context.get_buffer2 = mark_buffers;
}

bool has_marks(const AVFrame& frame, std::uint64_t mark) {
  const auto format = static_cast<AVPixelFormat>(frame.format);
  const AVPixFmtDescriptor* const pixels = av_pix_fmt_desc_get(format);
  if (pixels == nullptr) return false;
  for (int plane = 0; plane < av_pix_fmt_count_planes(format); ++plane) {
    const int bytes = av_image_get_linesize(format, frame.width, plane);
    const bool is_chroma = plane == 1 || plane == 2;
    const int rows = is_chroma ? AV_CEIL_RSHIFT(frame.height, pixels->log2_chroma_h) : frame.height;
    if (bytes <= 0 || frame.data[plane] == nullptr) continue;
    for (int y = 0; y < rows; ++y) {
      // Of both fields, and of the smallest blocks that codecs code by themselves.
      if (y % 4 != 0 && y % 8 != 1) continue;
      const std::uint8_t* const row =
          frame.data[plane] + static_cast<std::ptrdiff_t>(y) * frame.linesize[plane];
      if (has_marked_word(row, static_cast<std::size_t>(bytes), mark)) return true;
    }
  }
  return false;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavcodec/vorbis_parser.h>
#include <libavformat/avformat.h>
#include <libavutil/buffer.h>
#include <libavutil/dict.h>
#include <libavutil/frame.h>
#include <libavutil/mem.h>
}

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

// This header holds all ownership of FFmpeg's objects, and what FFmpeg says.
namespace spdld::media {

struct AvDeleter {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
  void operator()(AVCodecParameters* parameters) const { avcodec_parameters_free(&parameters); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVBufferRef* buffer) const { av_buffer_unref(&buffer); }
  // Leaves alone the AVIOContext that a demuxer was given.
  void operator()(AVFormatContext* context) const { avformat_close_input(&context); }
  void operator()(AVIOContext* context) const {
    av_freep(static_cast<void*>(&context->buffer));
    avio_context_free(&context);
  }
  void operator()(AVVorbisParseContext* parser) const { av_vorbis_parse_free(&parser); }
  void operator()(AVCodecParserContext* parser) const { av_parser_close(parser); }
};

template <typename T>
using AvPtr = std::unique_ptr<T, AvDeleter>;

// Options by name, as FFmpeg's functions that open something take them.
class AvOptions {
 public:
  AvOptions(std::initializer_list<std::pair<const char*, const char*>> options) {
    for (const auto& [name, value] : options) av_dict_set(&options_, name, value, 0);
  }
  ~AvOptions() { av_dict_free(&options_); }
  AvOptions(const AvOptions&) = delete;
  AvOptions& operator=(const AvOptions&) = delete;

  AVDictionary** get() { return &options_; }  // the function takes out what it knows

 private:
  AVDictionary* options_ = nullptr;
};

// Opens the decoder of this name, single-threaded (a worker is one thread), checking checksums and
// failing on whatever is wrong; no other codec can be reached through it.
Result<AvPtr<AVCodecContext>> open_decoder(const char* name);
// Likewise for the packets of a stream, which has these parameters, and no picture of more pixels.
// kDataLoss: the decoder refuses them.
Result<AvPtr<AVCodecContext>> open_decoder(const char* name, const AVCodecParameters& parameters,
                                           AVRational time_base,
                                           std::int64_t max_pixels = INT32_MAX);

// FFmpeg prints nothing from here on: its log is led to FfmpegReports. Any thread, any number of
// times.
void quieten_ffmpeg();

// Keeps what FFmpeg reports as an error on this thread while it lives; of several the first
// counts. FFmpeg prints nothing, ever: whatever opens one of its objects quietens it first. For
// some damage (a PNG whose image data ends early) the report is the only sign: the call succeeds.
// Make it on the stack, one at a time.
class FfmpegReports {
 public:
  // Reports that begin with `harmless` are not kept. Those whose format begins with one of
  // `telling` are, though FFmpeg does not take them for errors. Both outlive this.
  explicit FfmpegReports(std::string_view harmless = {},
                         std::span<const std::string_view> telling = {});
  ~FfmpegReports();
  FfmpegReports(const FfmpegReports&) = delete;
  FfmpegReports& operator=(const FfmpegReports&) = delete;

  bool any() const { return !first_.empty(); }
  const std::string& first() const { return first_; }
  void add(const char* text);
  bool is_telling(std::string_view format) const;

 private:
  const std::string_view harmless_;
  const std::span<const std::string_view> telling_;
  std::string first_;
};

// "Invalid data found when processing input".
std::string av_error_text(int error);

}  // namespace spdld::media

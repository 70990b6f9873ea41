// SPDX-License-Identifier: Apache-2.0
#include "media/container/ffmpeg.h"

extern "C" {
#include <libavutil/dict.h>
#include <libavutil/error.h>
#include <libavutil/log.h>
}

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "base/check.h"
#include "base/memory/no_memory.h"

namespace spdld::media {
namespace {

// FFmpeg's reports on this thread go here. FFmpeg's log callback has no room for a pointer of
// ours, and a decoder of one thread reports on the thread that called it.
thread_local FfmpegReports* current_reports = nullptr;

void on_log(void* /*source*/, int level, const char* format, std::va_list arguments) {
  if (current_reports == nullptr) return;
  if (level > AV_LOG_ERROR && !current_reports->is_telling(format)) return;
  std::array<char, 256> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  current_reports->add(text.data());
}

}  // namespace

void quieten_ffmpeg() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_callback(on_log); });
}

FfmpegReports::FfmpegReports(std::string_view harmless, std::span<const std::string_view> telling)
    : harmless_(harmless), telling_(telling) {
  SPDLD_CHECK(current_reports == nullptr);
  current_reports = this;
}

FfmpegReports::~FfmpegReports() { current_reports = nullptr; }

bool FfmpegReports::is_telling(std::string_view format) const {
  return std::any_of(telling_.begin(), telling_.end(),
                     [format](std::string_view begin) { return format.starts_with(begin); });
}

void FfmpegReports::add(const char* text) {
  if (any()) return;
  if (!harmless_.empty() && std::string_view(text).starts_with(harmless_)) return;
  first_ = text;
  while (!first_.empty() && (first_.back() == '\n' || first_.back() == '.')) first_.pop_back();
}

std::string av_error_text(int error) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(error, text.data(), text.size());
  return text.data();
}

namespace {

Result<AvPtr<AVCodecContext>> new_decoder(const char* name) {
  quieten_ffmpeg();
  const AVCodec* codec = avcodec_find_decoder_by_name(name);
  if (codec == nullptr) {
    return error(Code::kUnimplemented, std::string("this FFmpeg has no decoder \"") + name +
                                           "\"; install a complete libavcodec");
  }
  AvPtr<AVCodecContext> context(avcodec_alloc_context3(codec));
  if (context == nullptr) return tl::unexpected<Status>(no_memory("an FFmpeg decoder"));
  return context;
}

int open(AVCodecContext& context, const char* name) {
  context.thread_count = 1;
  context.err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  AvOptions options{{"codec_whitelist", name}};
  return avcodec_open2(&context, context.codec, options.get());
}

}  // namespace

Result<AvPtr<AVCodecContext>> open_decoder(const char* name) {
  SPDLD_ASSIGN(AvPtr<AVCodecContext> context, new_decoder(name));
  const int opened = open(*context, name);
  // The only other library that it opens is zlib, which fails for want of memory alone.
  if (opened == AVERROR(ENOMEM) || opened == AVERROR_EXTERNAL)
    return tl::unexpected<Status>(no_memory("an FFmpeg decoder"));
  if (opened < 0) {
    return error(Code::kInternal, std::string("FFmpeg cannot open its decoder \"") + name +
                                      "\": " + av_error_text(opened));
  }
  return context;
}

Result<AvPtr<AVCodecContext>> open_decoder(const char* name, const AVCodecParameters& parameters,
                                           AVRational time_base, std::int64_t max_pixels) {
  SPDLD_ASSIGN(AvPtr<AVCodecContext> context, new_decoder(name));
  if (avcodec_parameters_to_context(context.get(), &parameters) < 0)
    return tl::unexpected<Status>(no_memory("an FFmpeg decoder"));
  context->pkt_timebase = time_base;
  context->max_pixels = max_pixels;
  FfmpegReports reports;
  const int opened = open(*context, name);
  if (opened == AVERROR(ENOMEM)) return tl::unexpected<Status>(no_memory("an FFmpeg decoder"));
  if (opened < 0) {
    return error(Code::kDataLoss, std::string("corrupt ") + avcodec_get_name(parameters.codec_id) +
                                      ": FFmpeg says of its header: " +
                                      (reports.any() ? reports.first() : av_error_text(opened)));
  }
  return context;
}

}  // namespace spdld::media

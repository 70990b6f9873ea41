// SPDX-License-Identifier: Apache-2.0
#include "media/container/demuxer.h"

extern "C" {
#include <libavutil/dict.h>
#include <libavutil/error.h>
}

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "base/text/foreign_names.h"
#include "base/text/printable.h"
#include "media/bytes/seen_bytes.h"
#include "media/container/codecs.h"

namespace spdld::media {
namespace {

// Formats that hold their media themselves: no playlist, no network, no device, no list of images.
constexpr const char* kFormats = "mov,matroska,avi,mpegts,wav,w64,mp3,flac,ogg,aac";
constexpr const char* kFormatsShown =
    "mp4 (mov, m4a), Matroska (webm), avi, MPEG-TS, wav, mp3, flac, Ogg, aac";

constexpr std::size_t kMostProbed = std::size_t{1} << 20;
constexpr std::size_t kId3Header = 10;

// A file that names others in place of holding media begins like this.
struct PlaylistMark {
  std::string_view begin;
  const char* name;
};
constexpr std::array kPlaylists = {
    PlaylistMark{"#EXTM3U", "an HLS or M3U playlist"},
    PlaylistMark{"ffconcat version", "a concat script"},
    PlaylistMark{"# mpv EDL", "an edit decision list"},
    PlaylistMark{"mplayer EDL", "an edit decision list"},
    PlaylistMark{"[playlist]", "a PLS playlist"},
    PlaylistMark{"[Reference]", "a playlist"},
    PlaylistMark{"RTSPtext", "a playlist"},
    PlaylistMark{"rtsp://", "a playlist"},
    PlaylistMark{"http://", "a playlist"},
    PlaylistMark{"https://", "a playlist"},
    PlaylistMark{"file:", "a playlist"},
    PlaylistMark{"<?xml", "an XML document, such as a DASH manifest"},
    PlaylistMark{"<MPD", "a DASH manifest"},
    PlaylistMark{"<smil", "a SMIL playlist"},
    PlaylistMark{"<asx", "an ASX playlist"},
    PlaylistMark{"<ASX", "an ASX playlist"},
};

// Whether one of these names is also one of those; commas part names.
bool any_name_in(std::string_view names, std::string_view others) {
  const auto take = [](std::string_view& list) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    return name;
  };
  while (!names.empty()) {
    const std::string_view name = take(names);
    for (std::string_view rest = others; !rest.empty();)
      if (take(rest) == name) return true;
  }
  return false;
}

detail::Failure failure(Code code, std::string message) {
  return {Status(code, std::move(message))};
}

Status playlist_in(std::string_view begin) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (begin.starts_with(kByteOrderMark)) begin.remove_prefix(kByteOrderMark.size());
  while (!begin.empty() && std::strchr(" \t\r\n", begin.front()) != nullptr) begin.remove_prefix(1);
  for (const PlaylistMark& mark : kPlaylists) {
    if (begin.starts_with(mark.begin))
      return {Code::kInvalidArgument,
              std::string("the file is ") + mark.name +
                  ", which names other files; list the media files themselves"};
  }
  return {};
}

// Where the file's media begin behind its ID3v2 tags, which may be larger than what is probed.
Result<std::uint64_t> after_id3(ByteReader& reader) {
  std::uint64_t offset = 0;
  for (int tags = 0; tags < 16; ++tags) {
    std::array<std::byte, kId3Header> head{};
    SPDLD_ASSIGN(const std::size_t count, reader.read(offset, head));
    const auto at = [&](std::size_t i) { return std::to_integer<std::uint64_t>(head[i]); };
    if (count < head.size() || at(0) != 'I' || at(1) != 'D' || at(2) != '3' || at(3) == 0xFF ||
        at(4) == 0xFF || ((at(6) | at(7) | at(8) | at(9)) & 0x80) != 0)
      break;
    constexpr std::uint64_t kHasFooter = 0x10;
    offset += kId3Header + (at(6) << 21 | at(7) << 14 | at(8) << 7 | at(9)) +
              ((at(5) & kHasFooter) != 0 ? kId3Header : 0);
  }
  return offset;
}

// Guesses by the content alone, as FFmpeg does it: more and more of it, until one is likely.
Result<const AVInputFormat*> format_of(ByteReader& reader) {
  if (reader.size() == 0) return failure(Code::kDataLoss, "the media file is empty");
  SPDLD_ASSIGN(const std::uint64_t begin, after_id3(reader));
  std::vector<unsigned char> bytes;
  std::size_t filled = 0;
  for (std::size_t wanted = 2048;; wanted *= 2) {
    bytes.resize(wanted + AVPROBE_PADDING_SIZE);
    SPDLD_ASSIGN(
        const std::size_t count,
        reader.read(begin + filled,
                    std::as_writable_bytes(std::span(bytes)).subspan(filled, wanted - filled)));
    const bool first = filled == 0;
    filled += count;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(filled), bytes.end(), 0);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), filled);
    if (first) SPDLD_TRY(playlist_in(text));
    const bool last = filled < wanted || wanted >= kMostProbed;
    AVProbeData data{};
    data.filename = "";
    data.buf = bytes.data();
    data.buf_size = static_cast<int>(filled);
    int score = last ? 0 : AVPROBE_SCORE_RETRY;
    const AVInputFormat* format = av_probe_input_format2(&data, 1, &score);
    if (format != nullptr) {
      if (any_name_in(format->name, kFormats)) return format;
      return failure(Code::kInvalidArgument,
                     std::string("the file looks like the format \"") + format->name +
                         "\", which is not read; convert it to one of " + kFormatsShown);
    }
    if (last) {
      const ForeignFormat* const foreign = foreign_content(text.substr(0, kForeignHead));
      return failure(Code::kInvalidArgument,
                     "the file is no video or audio that is read (first bytes " + seen_bytes(text) +
                         "); the formats are " + kFormatsShown +
                         (foreign == nullptr ? "" : "; it is " + described(*foreign)));
    }
  }
}

// A demuxer asks for another file. Nothing but MediaIo opens files, and that opens none.
int refuse_file(AVFormatContext* context, AVIOContext** /*io*/, const char* url, int /*flags*/,
                AVDictionary** /*options*/) {
  static_cast<MediaIo*>(context->opaque)
      ->fail({Code::kInvalidArgument, "the file says that its media stand in another one, \"" +
                                          printable(url == nullptr ? "" : url) +
                                          "\", which is never opened; make it self-contained"});
  return AVERROR(EPERM);
}

// Whether there is as much memory as the headers of a file of this size may take.
bool has_memory_for(std::uint64_t file_bytes) {
  constexpr std::uint64_t kAtLeast = std::uint64_t{16} << 20;
  constexpr std::uint64_t kAtMost = std::uint64_t{512} << 20;
  void* const memory = av_malloc(std::clamp(file_bytes * 16, kAtLeast, kAtMost));
  const bool has = memory != nullptr;
  av_free(memory);
  return has;
}

Status open_failure(int result, const FfmpegReports& reports, const MediaLimits& limits,
                    const char* format, std::uint64_t file_bytes) {
  // FFmpeg says ENOMEM for this too.
  constexpr std::string_view kTooManyStreams = "Number of streams exceeds max_streams";
  if (reports.any() && reports.first().starts_with(kTooManyStreams)) {
    return {Code::kResourceExhausted, "the media file has more streams than the limit of " +
                                          std::to_string(limits.max_streams)};
  }
  // FFmpeg says so of damaged headers, too, which ask for any amount.
  if (result == AVERROR(ENOMEM)) {
    if (!has_memory_for(file_bytes)) return no_memory("the headers of a media file");
    return {Code::kDataLoss, std::string("corrupt media file (") + format +
                                 "): its headers ask for more memory than a file of " +
                                 std::to_string(file_bytes) + " bytes needs"};
  }
  return {Code::kDataLoss, std::string("corrupt media file (") + format + "): FFmpeg says: " +
                               (reports.any() ? reports.first() : av_error_text(result))};
}

}  // namespace

Result<Demuxer> Demuxer::open(ByteReader& reader, const MediaLimits& limits, std::stop_token stop) {
  quieten_ffmpeg();
  Demuxer demuxer;
  SPDLD_ASSIGN(const AVInputFormat* format, format_of(reader));
  if (any_name_in("mov", format->name)) {
    SPDLD_ASSIGN(demuxer.boxes_, walk_mov(reader, limits.max_packets));
  }
  SPDLD_ASSIGN(demuxer.io_, MediaIo::open(reader, std::move(stop)));
  SPDLD_TRY(demuxer.open_context(*format, limits));
  SPDLD_TRY(demuxer.check_streams(limits));
  return demuxer;
}

Status Demuxer::open_context(const AVInputFormat& format, const MediaLimits& limits) {
  context_.reset(avformat_alloc_context());
  if (context_ == nullptr) return no_memory("an FFmpeg demuxer");
  context_->pb = io_->context();
  context_->flags |= AVFMT_FLAG_CUSTOM_IO;
  context_->opaque = io_.get();
  context_->io_open = refuse_file;
  context_->interrupt_callback = {
      [](void* io) { return static_cast<int>(static_cast<MediaIo*>(io)->stopping()); }, io_.get()};
  context_->max_streams = limits.max_streams;
  // How far FFmpeg reads ahead to learn of streams what the headers do not tell.
  context_->probesize = 4 << 20;
  context_->max_analyze_duration = 5 * AV_TIME_BASE;
  // It looks at so many packets of a stream to know the codec. For wav, whose samples it takes for
  // DTS in disguise, a few are enough.
  context_->max_probe_packets = any_name_in("wav", format.name) ? 4 : 500;
  AvOptions options{{"format_whitelist", kFormats},
                    {"protocol_whitelist", ""},
                    // Demuxing needs no decoder; without one FFmpeg's parsers tell what they can.
                    {"codec_whitelist", "none"},
                    {"enable_drefs", "0"},
                    {"use_absolute_path", "0"},
                    {"ignore_chapters", "1"}};
  FfmpegReports reports;
  AVFormatContext* context = context_.release();  // FFmpeg frees it if it fails
  int result = avformat_open_input(&context, "", &format, options.get());
  context_.reset(context);
  if (!io_->status().ok()) return io_->status();
  if (result < 0) return open_failure(result, reports, limits, format.name, io_->size());
  if (is_complete()) return {};
  result = avformat_find_stream_info(context_.get(), nullptr);
  if (!io_->status().ok()) return io_->status();
  if (result < 0) return open_failure(result, reports, limits, format.name, io_->size());
  return {};
}

bool Demuxer::is_complete() const {
  if (!is_format("mov") && !is_format("matroska") && !is_format("wav")) return false;
  for (int i = 0; i < streams(); ++i) {
    const AVCodecParameters& codec = *stream(i).codecpar;
    if (find_media_codec(avcodec_get_name(codec.codec_id)) == nullptr) continue;
    if (codec.codec_type == AVMEDIA_TYPE_VIDEO && (codec.width <= 0 || codec.height <= 0))
      return false;
    if (codec.codec_type == AVMEDIA_TYPE_AUDIO &&
        (codec.sample_rate <= 0 || codec.ch_layout.nb_channels <= 0))
      return false;
  }
  return true;
}

Status Demuxer::check_streams(const MediaLimits& limits) const {
  if (streams() > limits.max_streams) {
    return {Code::kResourceExhausted, "the media file has " + std::to_string(streams()) +
                                          " streams, over the limit of " +
                                          std::to_string(limits.max_streams)};
  }
  constexpr std::int64_t kNoDuration = AV_NOPTS_VALUE;
  if (context_->duration != kNoDuration && context_->duration / AV_TIME_BASE > limits.max_seconds) {
    return {Code::kResourceExhausted,
            "the media file claims " + std::to_string(context_->duration / AV_TIME_BASE) +
                " seconds, over the limit of " + std::to_string(limits.max_seconds)};
  }
  for (int i = 0; i < streams(); ++i) {
    const AVCodecParameters& codec = *stream(i).codecpar;
    if (codec.codec_type != AVMEDIA_TYPE_VIDEO) continue;
    const std::int64_t pixels = std::int64_t{codec.width} * codec.height;
    if (pixels <= limits.max_pixels) continue;
    return {Code::kResourceExhausted,
            "pictures of " + std::to_string(codec.width) + "x" + std::to_string(codec.height) +
                " = " + std::to_string(pixels) + " pixels are over the limit of " +
                std::to_string(limits.max_pixels)};
  }
  return {};
}

void Demuxer::skip_media() {
  io_->skip(boxes_.media);
  context_->flags |= AVFMT_FLAG_NOPARSE;
}

bool Demuxer::is_format(std::string_view name) const {
  return any_name_in(name, context_->iformat->name);
}

void Demuxer::choose(int index) {
  SPDLD_CHECK(index >= 0 && index < streams());
  chosen_ = index;
  for (int i = 0; i < streams(); ++i)
    context_->streams[i]->discard = i == index ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
}

Result<bool> Demuxer::read(AVPacket& packet) {
  int result = 0;
  do {
    av_packet_unref(&packet);
    result = av_read_frame(context_.get(), &packet);
  } while (result >= 0 && chosen_ && packet.stream_index != *chosen_);
  if (!io_->status().ok()) return tl::unexpected<Status>(io_->status());
  if (result >= 0) return true;
  if (result == AVERROR_EOF) return false;
  // FFmpeg says so, too, of a packet that the file claims to be larger than FFmpeg reads. There is
  // none larger than the file.
  const std::uint64_t most = std::min<std::uint64_t>(io_->size(), INT_MAX / 2);
  if (result == AVERROR(ENOMEM) &&
      AvPtr<AVBufferRef>(av_buffer_alloc(static_cast<std::size_t>(most))) == nullptr)
    return tl::unexpected<Status>(no_memory("a packet"));
  return error(Code::kDataLoss, std::string("corrupt media file (") + context_->iformat->name +
                                    "): FFmpeg says: " + av_error_text(result));
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/video/video_decoder.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "media/container/codecs.h"
#include "media/container/random_access.h"
#include "media/jpeg_scan/jpeg_markers.h"
#include "media/video/h264_gaps.h"
#include "media/video/video_parameters.h"
#include "media/video/video_picture.h"
#include "op/gradual_refresh.h"

namespace spdld::media {
namespace {

// Columns and rows that a codec may add to a picture of the size that is shown.
constexpr std::int64_t kPadding = 128;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
// Pictures that a decoder holds at most: references, those that wait for their turn, and its own.
std::uint64_t held_pictures(std::string_view codec) {
  constexpr std::array<std::string_view, 3> kOfKeyFrames{"mjpeg", "prores", "ffv1"};
  constexpr std::array<std::string_view, 4> kOfFewReferences{"mpeg1video", "mpeg2video", "mpeg4",
                                                             "vp8"};
  const auto is_one_of = [codec](const auto& codecs) {
    return std::find(codecs.begin(), codecs.end(), codec) != codecs.end();
  };
  if (is_one_of(kOfKeyFrames)) return 4;
  return is_one_of(kOfFewReferences) ? 8 : 20;
}

// At most, where the file does not tell what its pictures are: whole planes of 8 bits, or chroma of
// half the width and height and up to 16 bits.
std::uint64_t pixel_bytes(const CodecParameters& codec) {
  constexpr int kLeast = 3;
  const AVPixFmtDescriptor* const pixels =
      av_pix_fmt_desc_get(av_get_pix_fmt(codec.pixel_format.c_str()));
  const int bits = pixels == nullptr ? 0 : av_get_padded_bits_per_pixel(pixels);
  return static_cast<std::uint64_t>(std::max(kLeast, (bits + 7) / 8));
}

std::int64_t padded(int side) { return (side + kPadding - 1) / kPadding * kPadding + kPadding; }

// Pictures whose packet holds all of them and nothing of another, so that no later packet is needed
// for them. The MPEG-4 of AVI files packs two into one.
PacketPlan::Codec plan_of(const CodecParameters& codec, bool is_gradual) {
  return {.ends_early = codec.codec != "mpeg4",
          .counts_leading = codec.codec == "h264",
          .until_whole = is_gradual ? pictures_until_whole(codec) : 0};
}

// FFmpeg reports this as an error of H.264 and decodes on, rightly: a stream that is entered at a
// key frame has none of the pictures before that, which it is told to forget.
constexpr std::string_view kHarmless = "mmco:";
// What FFmpeg says, not as an error, where it makes up a field, or a picture that the next ones
// refer to: the file lacks it.
constexpr std::array<std::string_view, 1> kMadeUp{"Duplicating field"};
constexpr std::array<std::string_view, 2> kMadeUpOrLeftOut{"Duplicating field", "Frame num gap"};
// Whether a decoder that was flushed makes of the next clip what a new one would. Others keep
// tables that a whole file brings anew, and a damaged one may lack: motion JPEG and MPEG their
// matrices, VP8 and VP9 what they know of segments. H.264 and HEVC keep traces where packets have
// brought parameters, or recovery points.
bool forgets(std::string_view codec, bool has_traces) {
  if (codec == "h264" || codec == "hevc") return !has_traces;
  return codec == "av1" || codec == "prores";
}

Orientation orientation_of(const StreamInfo& stream) {
  const int quarter = stream.rotation / 90 % 4;
  constexpr std::array<int, 4> kTurned{1, 6, 3, 8};
  constexpr std::array<int, 4> kMirrored{2, 7, 4, 5};
  const auto at = static_cast<std::size_t>(quarter);
  return Orientation::from_exif(stream.mirrored ? kMirrored[at] : kTurned[at]);
}

}  // namespace

class ClipDecoder::StoredRows final : public RegionReader {
 public:
  StoredRows(YuvRows& rows, const VideoPicture& picture, int channels)
      : rows_(rows), picture_(picture), channels_(channels) {}

  Status read(const Rect& region, RowSink& sink) override {
    rows_.give(picture_, region, channels_, sink);
    return {};
  }

 private:
  YuvRows& rows_;
  const VideoPicture& picture_;
  const int channels_;
};

Result<Size> ClipDecoder::open(const MediaClip& clip, std::span<const std::byte> bytes) {
  clip_ = nullptr;
  demuxer_.reset();
  const StreamInfo& stream = clip.stream;
  if (stream.codec == nullptr || stream.kind != StreamInfo::Kind::kVideo || clip.frames.empty())
    return error(Code::kDataLoss, "is no clip of a video");
  const CodecParameters& codec = *stream.codec;
  if (codec.width <= 0 || codec.height <= 0)
    return error(Code::kDataLoss, "corrupt video: its pictures have no size");
  const std::int64_t pixels = std::int64_t{codec.width} * codec.height;
  if (pixels > limits_.max_pixels)
    return error(Code::kResourceExhausted,
                 fmt::format("video of {}x{} = {} pixels is over the limit of {}; raise "
                             "decode_video.max_pixels to read it",
                             codec.width, codec.height, pixels, limits_.max_pixels));
  clip_ = &clip;
  bytes_ = bytes;
  stored_ = {.size = {codec.width, codec.height},
             .orientation = orientation_of(stream),
             .channels = channels_};
  wanted_.assign(clip.frames.begin(), clip.frames.end());
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
  given_.assign(wanted_.size(), 0);
  left_ = wanted_.size();
  next_packet_ = 0;
  report_.clear();
  is_trying_ = false;
  pts_ = fed_pts_ = begin_pts_ = whole_from_ = kNoTime;
  if (frame_ != nullptr) av_frame_unref(frame_.get());
  const Status planned = plan_packets();
  if (!planned.ok()) {
    clip_ = nullptr;
    return tl::unexpected(planned);
  }
  return stored_.orientation.upright_size(stored_.size);
}

std::uint64_t ClipDecoder::read_bytes() const {
  SPDLD_CHECK(clip_ != nullptr);
  const std::uint64_t picture = static_cast<std::uint64_t>(padded(stored_.size.width)) *
                                static_cast<std::uint64_t>(padded(stored_.size.height)) *
                                pixel_bytes(*clip_->stream.codec);
  return picture * held_pictures(clip_->stream.codec->codec) + UprightRows::most_bytes(stored_);
}

Status ClipDecoder::plan_packets() {
  packets_ = clip_->packets;
  is_gradual_ = clip_->stream.refreshes_gradually;
  if (clip_->stream.access == StreamInfo::Access::kDemux) {
    SPDLD_TRY(list_demuxed());
    packets_ = listed_;
  }
  const bool in_place = clip_->stream.access == StreamInfo::Access::kPackets;
  if (in_place) disposable_.find(*clip_->stream.codec, packets_, bytes_);
  leaves_traces_ = !in_place || disposable_.has_parameters() || is_gradual_;
  plan_.make(packets_, wanted_, plan_of(*clip_->stream.codec, is_gradual_),
             in_place ? disposable_.flags() : std::span<const std::uint8_t>());
  if (plan_.found() < wanted_.size())
    return fail("it has no packet for " + std::to_string(wanted_.size() - plan_.found()) +
                " of its frames");
  if (plan_.sent() > static_cast<std::uint64_t>(limits_.max_frames))
    return {Code::kResourceExhausted,
            fmt::format("a clip of {} frames needs {} to be decoded, over the limit of {}; raise "
                        "decode_video.max_frames to read it",
                        wanted_.size(), plan_.sent(), limits_.max_frames)};
  return {};
}

// The packets of the stream, by a first pass over the file.
Status ClipDecoder::list_demuxed() {
  listed_.clear();
  reader_ = std::make_unique<MemoryReader>(bytes_);
  const auto begin = [&]() -> Status {
    demuxer_.reset();
    auto demuxer = Demuxer::open(*reader_);
    if (!demuxer) return std::move(demuxer).error();
    demuxer_.emplace(*std::move(demuxer));
    if (clip_->stream.index < 0 || clip_->stream.index >= demuxer_->streams())
      return fail("its stream " + std::to_string(clip_->stream.index) + " is gone");
    demuxer_->choose(clip_->stream.index);
    demuxed_ = 0;
    return {};
  };
  SPDLD_TRY(begin());
  if (packet_ == nullptr) packet_.reset(av_packet_alloc());
  if (packet_ == nullptr) return no_memory("an FFmpeg packet");
  const CodecParameters& codec = *clip_->stream.codec;
  const std::size_t lengths = nal_length_bytes(codec.codec, codec.extradata);
  for (;;) {
    const Result<bool> more = demuxer_->read(*packet_);
    if (!more) return more.error();
    if (!*more) break;
    Refresh refresh = Refresh::kFull;
    // With the first packet a decoder begins whatever it is.
    if ((packet_->flags & AV_PKT_FLAG_KEY) != 0 && !listed_.empty())
      refresh = refresh_at(
          codec.codec, lengths,
          std::as_bytes(std::span(packet_->data, static_cast<std::size_t>(packet_->size))));
    if (refresh == Refresh::kGradual) is_gradual_ = true;
    listed_.push_back({.size_bytes = static_cast<std::uint32_t>(packet_->size),
                       .key = (packet_->flags & AV_PKT_FLAG_KEY) != 0 && refresh != Refresh::kNone,
                       .discard = (packet_->flags & AV_PKT_FLAG_DISCARD) != 0,
                       .pts = packet_->pts == AV_NOPTS_VALUE ? kNoTime : packet_->pts,
                       .dts = packet_->dts == AV_NOPTS_VALUE ? kNoTime : packet_->dts,
                       .duration = packet_->duration});
  }
  av_packet_unref(packet_.get());
  return begin();
}

void ClipDecoder::close_codec() {
  context_.reset();
  codec_.reset();
}

Status ClipDecoder::open_codec() {
  if (frame_ == nullptr) frame_.reset(av_frame_alloc());
  if (packet_ == nullptr) packet_.reset(av_packet_alloc());
  if (frame_ == nullptr || packet_ == nullptr) return no_memory("an FFmpeg frame");
  const std::shared_ptr<const CodecParameters>& wanted = clip_->stream.codec;
  const bool has_traces = std::exchange(has_traces_, leaves_traces_);
  if (context_ != nullptr && forgets(wanted->codec, has_traces) &&
      (codec_ == wanted || decode_alike(*codec_, *wanted))) {
    if (!is_fresh_) restart_codec();  // the clip before may not have been decoded to its end
    context_->pkt_timebase = {static_cast<int>(clip_->stream.time_base.num),
                              static_cast<int>(clip_->stream.time_base.den)};
    return {};
  }
  close_codec();
  const MediaCodec* const codec = find_media_codec(wanted->codec);
  if (codec == nullptr || codec->kind != StreamInfo::Kind::kVideo)
    return {Code::kInvalidArgument,
            "video of the codec '" + wanted->codec + "' is not read; convert the file to h264"};
  auto parameters = video_parameters(*wanted);
  if (!parameters) return std::move(parameters).error();
  auto opened = open_decoder(codec->decoder, **parameters,
                             {static_cast<int>(clip_->stream.time_base.num),
                              static_cast<int>(clip_->stream.time_base.den)},
                             padded(wanted->width) * padded(wanted->height));
  if (!opened) return std::move(opened).error();
  context_ = *std::move(opened);
  mark_frames(*context_, mark_);
  numbers_all_ = wanted->codec == "h264" && h264_allows_gaps(wanted->extradata) == false;
  // Its decoder would fail on kHarmless; what is damage, it reports.
  if (wanted->codec == "h264") context_->err_recognition &= ~AV_EF_EXPLODE;
  codec_ = wanted;
  is_fresh_ = true;
  return {};
}

Result<bool> ClipDecoder::next() {
  SPDLD_CHECK(clip_ != nullptr);
  if (left_ == 0) {
    clip_ = nullptr;
    return false;
  }
  if (next_packet_ == 0) SPDLD_TRY(open_codec());
  for (;;) {
    av_frame_unref(frame_.get());
    const int received = call([&] { return avcodec_receive_frame(context_.get(), frame_.get()); });
    if (received == AVERROR(EAGAIN) || received == AVERROR_EOF) {
      if (received == AVERROR_EOF) restart_codec();
      const Result<bool> fed = feed();
      if (!fed) return give_up(fed.error());
      if (!report_.empty()) return give_up(fail("it is damaged"));
      if (!*fed) return give_up(fail(std::to_string(left_) + " of its frames did not come out"));
      continue;
    }
    if (received < 0 && is_trying_ && received != AVERROR(ENOMEM)) continue;
    if (received < 0) return give_up(fail(received));
    if (!report_.empty()) return give_up(fail("it is damaged"));
    const Result<bool> taken = take();
    if (!taken) return give_up(taken.error());
    if (*taken) return true;
  }
}

template <typename Call>
int ClipDecoder::call(const Call& ffmpeg) {
  using Telling = std::span<const std::string_view>;
  const FfmpegReports reports(
      kHarmless, numbers_all_ && !is_beginning_ ? Telling(kMadeUpOrLeftOut) : Telling(kMadeUp));
  const int result = ffmpeg();
  if (report_.empty() && !is_trying_) report_ = reports.first();
  return result;
}

tl::unexpected<Status> ClipDecoder::give_up(Status status) {
  // Whatever the context is in the middle of, it shall not meet the next clip.
  close_codec();
  clip_ = nullptr;
  if (status.code() == kNoMemory || report_.empty()) return tl::unexpected(std::move(status));
  return error(status.code(), std::string(status.message()) + ": FFmpeg says: " + report_);
}

void ClipDecoder::restart_codec() {
  avcodec_flush_buffers(context_.get());
  is_fresh_ = true;
}

Result<bool> ClipDecoder::feed() {
  const std::span<const PacketPlan::Step> steps = plan_.steps();
  while (next_packet_ < steps.size() && steps[next_packet_] == PacketPlan::Step::kSkip)
    ++next_packet_;
  const bool is_end = next_packet_ == steps.size();
  const auto begins = [](PacketPlan::Step step) {
    return step == PacketPlan::Step::kBegin || step == PacketPlan::Step::kBeginTry;
  };
  if (is_end || (begins(steps[next_packet_]) && !is_fresh_)) {
    if (is_fresh_) return false;
    is_trying_ = false;
    SPDLD_TRY(send(nullptr));
    return true;
  }
  SPDLD_TRY(load_packet(next_packet_));
  const PacketPlan::Step step = steps[next_packet_];
  is_trying_ = step == PacketPlan::Step::kTry || step == PacketPlan::Step::kBeginTry;
  is_beginning_ = begins(step);
  if (is_trying_ && is_beginning_)
    whole_from_ = kNever;
  else if (is_beginning_ || (whole_from_ == kNever && !is_trying_))
    whole_from_ = packets_[next_packet_].pts;
  if (is_beginning_) {
    begin_pts_ = packets_[next_packet_].pts;
    context_->flags &= ~AV_CODEC_FLAG_OUTPUT_CORRUPT;
  }
  if (clip_->stream.codec->codec == "mjpeg" &&
      !has_all_components({reinterpret_cast<const std::byte*>(packet_->data),
                           static_cast<std::size_t>(packet_->size)}))
    return tl::unexpected(fail("a component of its picture has no scan"));
  ++next_packet_;
  is_fresh_ = false;
  const Status sent = send(packet_.get());
  av_packet_unref(packet_.get());
  if (!sent.ok()) return tl::unexpected(sent);
  return true;
}

Status ClipDecoder::send(const AVPacket* packet) {
  const int sent = call([&] { return avcodec_send_packet(context_.get(), packet); });
  if (sent < 0 && is_trying_ && sent != AVERROR(ENOMEM)) return {};
  return sent < 0 ? fail(sent) : Status();
}

Status ClipDecoder::load_packet(std::size_t i) {
  const MediaPacket& packet = packets_[i];
  fed_pts_ = packet.pts;
  if (demuxer_) {
    for (; demuxed_ <= i; ++demuxed_) {
      const Result<bool> more = demuxer_->read(*packet_);
      if (!more) return more.error();
      if (!*more) return fail("it ends early");
    }
    if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) return fail("a packet of it is damaged");
    return {};
  }
  if (packet.offset > bytes_.size() || packet.size_bytes > bytes_.size() - packet.offset)
    return fail("a packet of it lies beyond the bytes that were read");
  if (packet.size_bytes > INT_MAX / 2) return fail("a packet of it is larger than FFmpeg reads");
  const std::size_t size = packet.size_bytes + std::size_t{AV_INPUT_BUFFER_PADDING_SIZE};
  // The decoder may hold on to a packet until it has made the picture.
  if (input_ == nullptr || input_->size < size || av_buffer_is_writable(input_.get()) == 0) {
    const std::size_t grown = input_ == nullptr ? size : std::max(size, input_->size);
    input_.reset();
    input_.reset(av_buffer_alloc(grown + grown / 4));
    if (input_ == nullptr) return no_memory("a packet of a video", size);
  }
  std::memcpy(input_->data, bytes_.data() + packet.offset, packet.size_bytes);
  std::memset(input_->data + packet.size_bytes, 0, AV_INPUT_BUFFER_PADDING_SIZE);
  av_packet_unref(packet_.get());
  packet_->buf = av_buffer_ref(input_.get());
  if (packet_->buf == nullptr) return no_memory("an FFmpeg packet");
  packet_->data = input_->data;
  packet_->size = static_cast<int>(packet.size_bytes);
  packet_->pts = packet.pts == kNoTime ? AV_NOPTS_VALUE : packet.pts;
  packet_->dts = packet.dts == kNoTime ? AV_NOPTS_VALUE : packet.dts;
  packet_->duration = packet.duration;
  packet_->flags = (packet.key ? AV_PKT_FLAG_KEY : 0) | (packet.discard ? AV_PKT_FLAG_DISCARD : 0);
  return {};
}

Result<bool> ClipDecoder::take() {
  const std::int64_t pts =
      frame_->pts != AV_NOPTS_VALUE ? frame_->pts : frame_->best_effort_timestamp;
  // FFmpeg's H.264 holds back what it decodes from a key frame on until that one is shown, and
  // forgets to let go of it where the stream ends there. The key frame itself comes out only if all
  // that is shown from it on is whole; then nothing needs to be held back.
  if (pts == begin_pts_) context_->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  const auto at = std::lower_bound(wanted_.begin(), wanted_.end(), pts);
  const bool is_wanted = at != wanted_.end() && *at == pts;
  const bool is_damaged = (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 ||
                          frame_->decode_error_flags != 0 || has_marks(*frame_, mark_);
  // It was shown before the key frame that the decoder was given first, or is not whole yet.
  if (!is_wanted && is_damaged && pts < whole_from_) return false;
  if (is_damaged) {
    fed_pts_ = pts;
    return tl::unexpected(fail("a frame of it is damaged"));
  }
  SPDLD_TRY(check_frame());
  if (!is_wanted) return false;
  const auto number = static_cast<std::size_t>(at - wanted_.begin());
  std::uint8_t& given = given_[number];
  if (given != 0) return false;
  SPDLD_ASSIGN(picture_, picture_of(*frame_));
  given = 1;
  --left_;
  pts_ = pts;
  duration_ = packets_[plan_.packet_of(number)].duration;
  return true;
}

Status ClipDecoder::check_frame() const {
  const Size size{frame_->width, frame_->height};
  if (size == stored_.size) return {};
  return fail(
      fmt::format("its pictures change size: one has {}x{} pixels, and its header says "
                  "{}x{}; encode the file anew in one size",
                  size.width, size.height, stored_.size.width, stored_.size.height));
}

Status ClipDecoder::fail(int error) const {
  if (error == AVERROR(ENOMEM))
    return no_memory("the pictures of a video", clip_ == nullptr ? 0 : read_bytes());
  return fail(av_error_text(error));
}

Status ClipDecoder::fail(const std::string& why) const {
  std::string at;
  if (fed_pts_ != kNoTime)
    at = fmt::format(" at {:.3f} s",
                     static_cast<double>(fed_pts_) * clip_->stream.time_base.value());
  return {Code::kDataLoss, "corrupt " + clip_->stream.codec->codec + " video" + at + ": " + why};
}

Status ClipDecoder::read(const Rect& region, RowSink& rows) {
  StoredRows stored(rows_, picture_, channels_);
  return upright_.read(stored, stored_, region, rows);
}

}  // namespace spdld::media

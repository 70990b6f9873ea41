// SPDX-License-Identifier: Apache-2.0
#include "media/probe/stream_probe.h"

extern "C" {
#include <libavutil/intreadwrite.h>
#include <libavutil/mathematics.h>
#include <libavutil/pixdesc.h>
}

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/text/printable.h"
#include "media/container/codec_parameters.h"
#include "media/container/decode_packet.h"
#include "media/probe/sound_format.h"

namespace spdld::media {
namespace {

std::span<const std::byte> bytes_of(const AVPacket& packet) {
  return std::as_bytes(std::span(packet.data, static_cast<std::size_t>(std::max(packet.size, 0))));
}

std::int64_t time_of(std::int64_t time) { return time == AV_NOPTS_VALUE ? kNoTime : time; }

// Whether its times can be added up and compared.
bool has_possible_times(const MediaPacket& packet) {
  const auto is_possible = [](std::int64_t time) {
    return time == kNoTime || is_possible_time(time);
  };
  return is_possible(packet.pts) && is_possible(packet.dts) && packet.duration >= 0 &&
         is_possible_time(packet.duration);
}

}  // namespace

const MediaCodec* StreamProbe::codec_of(const AVStream& stream) {
  const AVMediaType type = stream.codecpar->codec_type;
  if (type != AVMEDIA_TYPE_VIDEO && type != AVMEDIA_TYPE_AUDIO) return nullptr;
  constexpr int kNoStream = AV_DISPOSITION_ATTACHED_PIC | AV_DISPOSITION_TIMED_THUMBNAILS;
  if ((stream.disposition & kNoStream) != 0) return nullptr;
  const MediaCodec* codec = find_media_codec(avcodec_get_name(stream.codecpar->codec_id));
  if (codec == nullptr) return nullptr;
  return (type == AVMEDIA_TYPE_VIDEO) == (codec->kind == StreamInfo::Kind::kVideo) ? codec
                                                                                   : nullptr;
}

StreamProbe::StreamProbe(const AVStream& stream, const MediaCodec& codec, ByteReader& reader,
                         std::int64_t max_pixels)
    : codec_(codec),
      time_base_(stream.time_base),
      parameters_(*stream.codecpar),
      reader_(reader),
      max_pixels_(max_pixels),
      sound_(*stream.codecpar),
      keys_(codec_parameters(*stream.codecpar, stream.sample_aspect_ratio)) {
  StreamInfo& info = made_.info;
  info.kind = codec.kind;
  info.index = stream.index;
  info.time_base = {stream.time_base.num, stream.time_base.den};
  info.codec = std::make_shared<const CodecParameters>(
      codec_parameters(*stream.codecpar, stream.sample_aspect_ratio));
  const Turn turn = turn_of(stream);
  info.rotation = turn.rotation;
  info.mirrored = turn.mirrored;
  inexact_turn_ = !turn.exact;
  constexpr int kLooks = 3;
  const bool video = codec.kind == StreamInfo::Kind::kVideo;
  if (video ? info.codec->width <= 0 || info.codec->height <= 0
            : hides_format(parameters_.codec_id))
    looks_ = kLooks;
  // libavcodec cuts this off even if the container says nothing of it.
  constexpr int kPreSkipAt = 10;
  if (parameters_.codec_id == AV_CODEC_ID_OPUS && parameters_.extradata_size >= kPreSkipAt + 2)
    opus_skip_ = AV_RL16(parameters_.extradata + kPreSkipAt);
  const AVDictionaryEntry* language = av_dict_get(stream.metadata, "language", nullptr, 0);
  if (language != nullptr && std::strcmp(language->value, "und") != 0)
    made_.language = printable(language->value);
  made_.is_default = (stream.disposition & AV_DISPOSITION_DEFAULT) != 0;
}

bool StreamProbe::needs_bytes() const {
  return codec_.kind == StreamInfo::Kind::kVideo ? shown_needs_bytes() : sound_.needs_bytes();
}

bool StreamProbe::shown_needs_bytes() const {
  return std::strcmp(codec_.name, "vp8") == 0 || std::strcmp(codec_.name, "vp9") == 0;
}

// VP8 and VP9 have packets of pictures that others refer to, and that are never shown.
bool StreamProbe::is_shown(const AVPacket& packet) const {
  if (packet.size < 1) return true;
  const unsigned first = packet.data[0];
  if (std::strcmp(codec_.name, "vp8") == 0) return (first & 0x10) != 0;
  // VP9 begins with a frame marker of 2 bits, the profile, whether a frame is shown again, whether
  // it depends on others, whether it is shown. A superframe holds one that is.
  if (first >> 6 != 2 || (packet.data[packet.size - 1] & 0xE0) == 0xC0) return true;
  const bool profile3 = (first & 0x30) == 0x30;
  const unsigned bits = profile3 ? first << 1 : first;
  return (bits & 0x08) != 0 || (bits & 0x02) != 0;
}

Status StreamProbe::add(const AVPacket& packet, PacketFinder* finder) {
  MediaPacket made;
  made.offset = packet.pos < 0 ? 0 : static_cast<std::uint64_t>(packet.pos);
  made.size_bytes = static_cast<std::uint32_t>(packet.size);
  made.key = (packet.flags & AV_PKT_FLAG_KEY) != 0;
  made.discard = (packet.flags & AV_PKT_FLAG_DISCARD) != 0;
  made.pts = time_of(packet.pts);
  made.dts = time_of(packet.dts);
  made.duration = packet.duration;
  if (packet.size == 0) return {};
  if (finder == nullptr) {
    in_place_ = in_place_ && packet.pos >= 0;
  } else if (in_place_) {
    // Laced packets follow each other in one block.
    const bool same_block = !made_.packets.empty() && block_ == made.offset;
    block_ = made.offset;
    SPDLD_ASSIGN(const std::optional<std::uint64_t> offset,
                 finder->find(same_block ? after_last_ : made.offset, bytes_of(packet)));
    in_place_ = packet.pos >= 0 && offset.has_value();
    made.offset = offset.value_or(0);
    after_last_ = made.offset + made.size_bytes;
  }
  // The file ends within it.
  if ((packet.flags & AV_PKT_FLAG_CORRUPT) != 0) cut_off_ = true;
  if (codec_.kind == StreamInfo::Kind::kAudio) {
    SPDLD_TRY(count_samples(packet, finder != nullptr, made));
  } else {
    if (looks_ > 0 && made.key) SPDLD_TRY(look_at_picture(packet, finder != nullptr));
    if (finder != nullptr && !is_shown(packet)) made.discard = true;
    if (finder != nullptr && keys_.wants(made))
      keys_.look(made, made_.packets.empty(), bytes_of(packet));
    without_duration_ = without_duration_ || made.duration <= 0;
  }
  if (!has_possible_times(made))
    return {Code::kDataLoss, "corrupt media file: a packet of its stream " +
                                 std::to_string(made_.info.index) +
                                 " stands at a time that cannot be right"};
  pass_time(made);
  made_.packets.push_back(made);
  return {};
}

Status StreamProbe::count_samples(const AVPacket& packet, bool with_bytes, MediaPacket& made) {
  if (looks_ > 0) SPDLD_TRY(look_at_sound(packet, with_bytes));
  std::size_t bytes = 0;
  const std::uint8_t* side = av_packet_get_side_data(&packet, AV_PKT_DATA_SKIP_SAMPLES, &bytes);
  constexpr std::size_t kSkipBytes = 10;
  if (side != nullptr && bytes >= kSkipBytes) {
    made.skip_samples = AV_RL32(side);
    made.discard_samples = AV_RL32(side + 4);
  } else if (made_.packets.empty()) {
    // Matroska leaves it to the decoder, which takes it from Opus's header.
    made.skip_samples = opus_skip_;
  }
  made.duration = sound_.of(bytes_of(packet));
  coded_samples_ += made.duration;
  made_.info.samples += static_cast<std::uint64_t>(cut_.of(made).samples);
  return {};
}

Result<std::span<const std::byte>> StreamProbe::seen_bytes(const AVPacket& packet, bool with_bytes,
                                                           std::vector<std::byte>& memory) {
  const std::span<const std::byte> given = bytes_of(packet);
  if (with_bytes) return given;
  if (packet.pos < 0) return std::span<const std::byte>();
  memory.resize(given.size());
  SPDLD_ASSIGN(const std::size_t count,
               reader_.read(static_cast<std::uint64_t>(packet.pos), memory));
  return std::span<const std::byte>(memory).first(count);
}

Status StreamProbe::look_at_sound(const AVPacket& packet, bool with_bytes) {
  --looks_;
  std::vector<std::byte> memory;
  SPDLD_ASSIGN(const std::span<const std::byte> seen, seen_bytes(packet, with_bytes, memory));
  SPDLD_ASSIGN(const std::optional<SoundFormat> format, sound_format(parameters_, seen));
  if (!format.has_value() || format->sample_rate <= 0 || format->channels <= 0) return {};
  looks_ = 0;
  sound_.set_frame_size(format->frame_size);
  auto codec = std::make_shared<CodecParameters>(*made_.info.codec);
  codec->sample_rate = format->sample_rate;
  codec->channels = format->channels;
  codec->channel_layout = format->channel_layout;
  codec->sample_format = format->sample_format;
  codec->frame_size = format->frame_size;
  made_.info.codec = std::move(codec);
  return {};
}

Status StreamProbe::look_at_picture(const AVPacket& packet, bool with_bytes) {
  --looks_;
  std::vector<std::byte> memory;
  SPDLD_ASSIGN(const std::span<const std::byte> seen, seen_bytes(packet, with_bytes, memory));
  SPDLD_ASSIGN(const AvPtr<AVFrame> frame, decode_packet(parameters_, seen, max_pixels_));
  if (frame == nullptr || frame->width <= 0 || frame->height <= 0) return {};
  looks_ = 0;
  auto codec = std::make_shared<CodecParameters>(*made_.info.codec);
  codec->width = frame->width;
  codec->height = frame->height;
  const char* pixels = av_get_pix_fmt_name(static_cast<AVPixelFormat>(frame->format));
  codec->pixel_format = pixels == nullptr ? "" : pixels;
  made_.info.codec = std::move(codec);
  return {};
}

Result<std::vector<std::byte>> StreamProbe::head_of(const MediaPacket& packet) {
  std::vector<std::byte> head(std::min<std::size_t>(packet.size_bytes, KeyPictures::kHeadBytes));
  SPDLD_ASSIGN(const std::size_t count, reader_.read(packet.offset, head));
  head.resize(count);
  return head;
}

// Each look takes a read. Some key packets tell whether all need to be looked at; the first one
// tells nothing of the others, and matters only where pictures behind it are shown before it.
Status StreamProbe::look_at_keys() {
  if (codec_.kind != StreamInfo::Kind::kVideo || !in_place_) return {};
  std::vector<MediaPacket>& packets = made_.packets;
  std::vector<const MediaPacket*> keys;
  for (const MediaPacket& packet : packets) {
    if (packet.key) keys.push_back(&packet);
  }
  if (keys.empty()) return {};
  bool all_full = true;
  constexpr std::size_t kLooks = 8;
  const std::size_t step = std::max<std::size_t>(1, keys.size() / kLooks);
  for (std::size_t i = 1; keys_.can_differ() && all_full && i < keys.size(); i += step) {
    SPDLD_ASSIGN(const std::vector<std::byte> head, head_of(*keys[i]));
    all_full = keys_.is_full(head);
  }
  const MediaPacket* const end =
      all_full && keys.size() > 1 ? keys[1] : packets.data() + packets.size();
  const std::int64_t first_pts = keys[0]->pts;
  const bool any_leads = std::any_of(keys[0], end, [&](const MediaPacket& packet) {
    return packet.pts != kNoTime && packet.pts < first_pts;
  });
  if (all_full && !any_leads) return {};
  for (MediaPacket& packet : packets) {
    if (&packet == end) break;
    if (!keys_.wants(packet)) continue;
    SPDLD_ASSIGN(const std::vector<std::byte> head, head_of(packet));
    keys_.look(packet, &packet == packets.data(), head);
  }
  return {};
}

void StreamProbe::set_pcm(std::uint64_t offset, std::uint64_t samples) {
  pcm_ = true;
  made_.info.pcm_offset = offset;
  made_.info.samples = samples;
  made_.info.end_pts = static_cast<std::int64_t>(samples);
}

void StreamProbe::pass_time(const MediaPacket& packet) {
  const std::int64_t time = packet.pts == kNoTime ? packet.dts : packet.pts;
  if (time == kNoTime) return;
  if (first_time_ == kNoTime || time < first_time_) first_time_ = time;
  if (last_time_ == kNoTime || time > last_time_) last_time_ = time;
}

double StreamProbe::seconds() const {
  return static_cast<double>(last_time_ - first_time_) * made_.info.time_base.value();
}

// avi tells decoding times alone. A picture that is not shown as soon as it is decoded is shown
// when the next one of that kind is decoded, as FFmpeg has it ("genpts").
void StreamProbe::fill_times() {
  std::vector<MediaPacket>& packets = made_.packets;
  std::size_t next = packets.size();  // the next packet that is not shown at once
  for (std::size_t i = packets.size(); i-- > 0;) {
    MediaPacket& packet = packets[i];
    const bool at_once = packet.pts != kNoTime && packet.pts == packet.dts;
    if (packet.pts == kNoTime && packet.dts != kNoTime) {
      if (next < packets.size() && packets[next].dts != kNoTime) {
        packet.pts = packets[next].dts;
      } else {
        packet.pts = packets.back().dts == kNoTime ? kNoTime : packets.back().dts + packet.duration;
      }
    }
    if (!at_once) next = i;
  }
}

// The most pictures that precede one in decoding order and follow it in presentation order: what a
// decoder must hold back, where the container does not tell.
int StreamProbe::reorder_frames() const {
  constexpr std::size_t kMost = 16;
  std::vector<std::int64_t> latest;  // of the pictures so far, ascending
  std::size_t most = 0;
  for (const MediaPacket& packet : made_.packets) {
    if (packet.pts == kNoTime) continue;
    const auto later = std::upper_bound(latest.begin(), latest.end(), packet.pts);
    most = std::max(most, static_cast<std::size_t>(latest.end() - later));
    latest.insert(later, packet.pts);
    if (latest.size() > kMost) latest.erase(latest.begin());
  }
  return static_cast<int>(most);
}

// Pictures before the first key picture that is a full refresh, or, if it is none, before the one
// behind it: nothing in the file is there for a decoder to begin with.
void StreamProbe::leave_out_undecodable(std::set<std::string>& faults) {
  std::vector<MediaPacket>& packets = made_.packets;
  const auto is_key = [](const MediaPacket& packet) { return packet.key; };
  const auto first = std::find_if(packets.begin(), packets.end(), is_key);
  if (packets.empty() || (first == packets.begin() && !keys_.begins_gradually())) return;
  faults.insert("does not begin with a key frame");
  if (first == packets.end()) return;
  for (auto packet = packets.begin(); packet != first; ++packet) packet->discard = true;
  if (!keys_.begins_gradually()) return;
  const auto second = std::find_if(first + 1, packets.end(), is_key);
  if (second == packets.end()) return;
  for (MediaPacket& packet : packets) {
    if (packet.pts < second->pts) packet.discard = true;
  }
}

bool StreamProbe::finish_video(std::set<std::string>& faults) {
  if (made_.info.codec->width <= 0 || made_.info.codec->height <= 0) {
    faults.insert("video whose pictures have no size (" + std::string(codec_.name) + ")");
    return false;
  }
  std::vector<MediaPacket>& packets = made_.packets;
  const auto timeless = [](const MediaPacket& packet) { return packet.pts == kNoTime; };
  if (std::any_of(packets.begin(), packets.end(), timeless)) {
    // Which pictures H.264 and H.265 hold back cannot be told from decoding times.
    const std::string_view name = codec_.name;
    const bool known = name != "h264" && name != "hevc";
    if (known) fill_times();
    if (!known || std::any_of(packets.begin(), packets.end(), timeless)) {
      faults.insert("video without times of presentation (" + std::string(name) + ")");
      return false;
    }
  }
  made_.info.refreshes_gradually = keys_.refreshes_gradually();
  leave_out_undecodable(faults);
  std::vector<std::int64_t>& times = made_.frame_pts;
  for (const MediaPacket& packet : packets) {
    if (!packet.discard) times.push_back(packet.pts);
    if (packet.duration > 0 && !packet.discard)
      made_.info.end_pts = std::max(made_.info.end_pts, packet.pts + packet.duration);
  }
  std::sort(times.begin(), times.end());
  const auto end = std::unique(times.begin(), times.end());
  if (end != times.end()) faults.insert("several pictures of the same time");
  times.erase(end, times.end());
  if (without_duration_) faults.insert("pictures without durations");
  if (cut_off_) faults.insert("the file ends within a packet");
  if (times.empty()) faults.insert("video without pictures");
  if (inexact_turn_) faults.insert("turned by an angle that is no multiple of 90 degrees");
  if (const int held_back = reorder_frames(); held_back > made_.info.codec->reorder_frames) {
    auto codec = std::make_shared<CodecParameters>(*made_.info.codec);
    codec->reorder_frames = held_back;
    made_.info.codec = std::move(codec);
  }
  return true;
}

// Containers round times to their ticks; how many samples packets decode to is exact.
bool StreamProbe::finish_audio(std::set<std::string>& faults) {
  if (made_.info.samples == 0) faults.insert("sound without samples");
  if (coded_samples_ < told_samples_.least) faults.insert("the file ends before its header says");
  if (coded_samples_ > told_samples_.most)
    faults.insert("the file goes on behind the end that its header says");
  if (cut_off_) faults.insert("the file ends within a packet");
  StreamInfo& info = made_.info;
  std::vector<MediaPacket>& packets = made_.packets;
  const int rate = info.codec->sample_rate;
  if (rate <= 0 || info.codec->channels <= 0) {
    // Of some codecs the first packet alone tells them.
    if (!packets.empty())
      faults.insert("sound without a rate or channels (" + std::string(codec_.name) + ")");
    return false;
  }
  if (pcm_ || packets.empty()) return true;
  std::int64_t before = 0;  // samples of the packets before the first one that has a time
  std::int64_t begin = 0;
  for (const MediaPacket& packet : packets) {
    if (packet.pts != kNoTime) {
      begin = av_rescale_q(packet.pts, time_base_, {1, rate});
      if (!is_possible_time(begin)) {
        faults.insert("sound at a time that cannot be right (" + std::string(codec_.name) + ")");
        return false;
      }
      begin -= before;
      break;
    }
    before += packet.duration;
  }
  std::int64_t silence = 0;  // of all gaps so far
  CutSamples cut;
  bool any_heard = false;
  for (MediaPacket& packet : packets) {
    if (packet.pts != kNoTime) find_gap(packet.pts, begin, silence);
    const CutSamples::Kept kept = cut.of(packet);
    // The clock stands still for what is cut off within the sound, as where several files were put
    // one behind the other, or a header counts too few frames.
    packet.pts = packet.dts = any_heard ? begin - kept.skipped : begin;
    begin += any_heard          ? kept.samples
             : kept.samples > 0 ? kept.skipped + kept.samples
                                : packet.duration;
    any_heard = any_heard || kept.samples > 0;
  }
  info.time_base = {1, rate};
  info.end_pts = begin;
  if (info.is_off_clock) made_.gaps = {};
  if (info.is_off_clock) faults.insert("sound whose times go back, or leap too often");
  if (!made_.gaps.empty()) faults.insert("sound with gaps, which windows of sound close");
  return true;
}

// Sound is heard at the times that its packets tell. They are rounded and jitter, by less than a
// picture is shown at 25 a second; what is further from the samples counted so far is a gap.
void StreamProbe::find_gap(std::int64_t pts, std::int64_t counted, std::int64_t& silence) {
  constexpr int kMostOffPerSecond = 25;
  StreamInfo& info = made_.info;
  const int rate = info.codec->sample_rate;
  const std::int64_t told = av_rescale_q(pts, time_base_, {1, rate});
  if (info.is_off_clock) return;
  if (!is_possible_time(told) || !is_possible_time(counted)) {
    info.is_off_clock = true;
    return;
  }
  const std::int64_t off = told - counted - silence;
  if (std::abs(off) <= rate / kMostOffPerSecond) return;
  if (off < 0 || made_.gaps.size() >= MediaStream::kMostGaps) {
    info.is_off_clock = true;
    return;
  }
  made_.gaps.push_back({.before = counted, .samples = off});
  silence += off;
}

bool StreamProbe::finish(MediaStream& made, std::set<std::string>& faults) {
  const bool video = codec_.kind == StreamInfo::Kind::kVideo;
  if (video ? !finish_video(faults) : !finish_audio(faults)) return false;
  using Access = StreamInfo::Access;
  made_.info.access = pcm_ ? Access::kPcm : in_place_ ? Access::kPackets : Access::kDemux;
  if (!in_place_) {
    made_.packets = {};
    made_.gaps = {};
  }
  made = std::move(made_);
  return true;
}

}  // namespace spdld::media

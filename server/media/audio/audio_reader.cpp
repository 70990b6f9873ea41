// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_reader.h"

extern "C" {
#include <libavutil/intreadwrite.h>
#include <libavutil/mathematics.h>
}

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory/no_memory.h"
#include "base/text/counted.h"
#include "media/audio/audio_parameters.h"
#include "media/audio/audio_stream.h"
#include "media/audio/mpeg_header.h"
#include "media/audio/wav_file.h"
#include "media/bytes/byte_reader.h"
#include "media/container/demuxer.h"

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", seconds);
  return text.data();
}

// No frame of sound takes more.
constexpr std::uint32_t kMostPacket = 64U << 20;

Bytes bytes_of(const AVPacket& packet) {
  return std::as_bytes(std::span(packet.data, static_cast<std::size_t>(packet.size)));
}

bool is_mpeg_audio(AVCodecID codec) { return codec == AV_CODEC_ID_MP3 || codec == AV_CODEC_ID_MP2; }

// Whether a packet begins with a tag. Where files were put one behind the other, those of the next
// one stand between its frames and these, and FFmpeg makes no sound of them.
bool is_tag(AVCodecID codec, const AVPacket& packet) {
  if (!is_mpeg_audio(codec)) return false;
  const std::string_view begin(reinterpret_cast<const char*>(packet.data),
                               static_cast<std::size_t>(packet.size));
  return begin.starts_with("ID3") || begin.starts_with("TAG") || begin.starts_with("APETAGEX");
}

}  // namespace

Result<std::uint64_t> AudioReader::read(Bytes bytes, const MediaClip* clip, Sound& sound,
                                        std::uint64_t room_bytes) {
  return clip == nullptr ? read_file(bytes, sound, room_bytes)
                         : read_clip(bytes, *clip, sound, room_bytes);
}

detail::Failure AudioReader::too_long() const {
  return {{Code::kResourceExhausted, "it is longer than decode_audio.max_seconds, which is " +
                                         seconds_text(options_.max_seconds)}};
}

Status AudioReader::check_length(const Sound& sound) const {
  if (sound.sample_rate > kMostRate)
    return {Code::kDataLoss, "its sample rate is " + std::to_string(sound.sample_rate) + " Hz"};
  if (sound.length == 0) return {Code::kDataLoss, "it has no samples"};
  if (sound.length > options_.max_samples(sound.sample_rate)) return too_long();
  return {};
}

Status AudioReader::check_channels(int channels) const {
  if (channels <= options_.max_channels) return {};
  return {Code::kResourceExhausted, "it has " + std::to_string(channels) +
                                        " channels, and decode_audio.max_channels is " +
                                        std::to_string(options_.max_channels)};
}

Result<std::uint64_t> AudioReader::read_file(Bytes bytes, Sound& sound, std::uint64_t room_bytes) {
  if (is_wav(bytes)) {
    SPDLD_ASSIGN(const std::optional<WavFile> wav, read_wav(bytes));
    if (wav) {
      SPDLD_TRY(check_only_stream(options_.stream));
      channels_ = Channels::of(wav->channels, wav->channel_mask);
      SPDLD_TRY(check_channels(wav->channels));
      sound.sample_rate = wav->sample_rate;
      sound.length = wav->samples();
      SPDLD_TRY(check_length(sound));
      return read_samples({.format = wav->format,
                           .sample_rate = wav->sample_rate,
                           .channels = wav->channels,
                           .data = wav->data},
                          sound, room_bytes);
    }
  }
  window_.begin(sound, 0, 0, SoundWindow::kNoEnd, room_bytes);
  SPDLD_ASSIGN(const bool done, decode_stream(bytes, options_.stream, true));
  if (!done) return window_.needs_bytes();
  window_.finish();
  channels_ = window_.channels();
  SPDLD_TRY(check_length(sound));
  return 0;
}

Result<std::uint64_t> AudioReader::read_samples(const Pcm& pcm, Sound& sound,
                                                std::uint64_t room_bytes) {
  const auto count = static_cast<std::size_t>(pcm.channels);
  const auto sample_bytes = static_cast<std::size_t>(pcm.format.bytes);
  const std::size_t stride = sample_bytes * count;
  const std::size_t length = pcm.data.size() / stride;
  const std::uint64_t taken = std::uint64_t{length} * count * sizeof(float);
  if (taken > room_bytes) return taken;
  sound.values.reserve(length * count);
  sound.reshape(pcm.channels, 0, static_cast<std::int64_t>(length));
  sound.sample_rate = pcm.sample_rate;
  for (std::size_t c = 0; c < count; ++c)
    read_pcm(pcm.format, pcm.data.data() + c * sample_bytes, stride, sound.length,
             sound.channel(static_cast<int>(c)).data());
  return 0;
}

Result<bool> AudioReader::decode_stream(Bytes bytes, const StreamChoice& choice, bool whole) {
  MemoryReader reader(bytes);
  SPDLD_ASSIGN(Demuxer demuxer, Demuxer::open(reader));
  SPDLD_ASSIGN(const int number, find_audio_stream(demuxer, choice));
  demuxer.choose(number);
  const AVStream& stream = demuxer.stream(number);
  const AVCodecID codec = stream.codecpar->codec_id;
  SPDLD_TRY(decoder_.begin(*stream.codecpar, stream.time_base, options_.max_channels));
  if (packet_ == nullptr) packet_.reset(av_packet_alloc());
  if (packet_ == nullptr) return tl::unexpected<Status>(no_memory("an FFmpeg packet"));
  Status junk;
  while (!window_.is_full()) {
    SPDLD_ASSIGN(const bool more, demuxer.read(*packet_));
    if (!more) break;
    if (packet_->size == 0) continue;
    if ((packet_->flags & AV_PKT_FLAG_CORRUPT) != 0)
      return error(Code::kDataLoss, std::string("corrupt ") + avcodec_get_name(codec) +
                                        ": a packet of its sound is damaged or cut off");
    if (is_tag(codec, *packet_)) continue;
    auto decoded = decoder_.decode(packet_.get(), window_);
    if (!decoded && is_mpeg_audio(codec) && mpeg_audio_header(bytes_of(*packet_)) == 0) {
      // What stands behind the last frame is no loss.
      junk = std::move(decoded).error();
      SPDLD_TRY(decoder_.begin(*stream.codecpar, stream.time_base, options_.max_channels));
      continue;
    }
    if (!decoded || !*decoded) return decoded;
    if (!junk.ok()) return tl::unexpected<Status>(std::move(junk));
    // One sample more than is allowed tells that there are too many.
    if (whole && window_.has_format())
      window_.end_at(options_.max_samples(window_.sample_rate()) + 1);
  }
  if (window_.is_full()) return true;
  return decoder_.decode(nullptr, window_);
}

Result<std::uint64_t> AudioReader::read_clip(Bytes bytes, const MediaClip& clip, Sound& sound,
                                             std::uint64_t room_bytes) {
  using Access = StreamInfo::Access;
  SPDLD_ASSIGN(const ClipSpan span, ClipSpan::of(clip));
  const int rate = clip.stream.codec->sample_rate;
  if (rate > 0 && span.samples() > options_.max_samples(rate)) return too_long();
  if (span.begin() == span.end()) {
    const CodecParameters& codec = *clip.stream.codec;
    if (codec.channels <= 0) return error(Code::kDataLoss, "it has no channels");
    SPDLD_TRY(check_channels(codec.channels));
    channels_ = Channels::of(codec.channels, codec.channel_layout);
    sound.reshape(codec.channels, 0, 0);
    sound.sample_rate = rate;
  } else if (clip.stream.access == Access::kPcm) {
    SPDLD_ASSIGN(const std::uint64_t needs, read_pcm_clip(bytes, clip, span, sound, room_bytes));
    if (needs > 0) return needs;
  } else {
    const bool demuxes = clip.stream.access == Access::kDemux;
    window_.begin(sound, 0, span.begin(), span.end(), room_bytes);
    const StreamChoice choice{.kind = StreamChoice::Kind::kNumber, .number = clip.stream.index};
    SPDLD_ASSIGN(const bool done,
                 demuxes ? decode_stream(bytes, choice, false) : decode_packets(bytes, clip, span));
    if (!done) return window_.needs_bytes();
    window_.finish();
    channels_ = window_.channels();
  }
  const std::uint64_t taken = static_cast<std::uint64_t>(sound.channels) *
                                  static_cast<std::uint64_t>(span.samples()) * sizeof(float) +
                              sound.values.capacity() * sizeof(float);
  if (taken > room_bytes) return taken;
  SPDLD_TRY(span.fill(sound, scratch_));
  return 0;
}

Result<std::uint64_t> AudioReader::read_pcm_clip(Bytes bytes, const MediaClip& clip,
                                                 const ClipSpan& span, Sound& sound,
                                                 std::uint64_t room_bytes) {
  const CodecParameters& codec = *clip.stream.codec;
  const std::optional<PcmFormat> format = pcm_format(codec.codec);
  if (!format || codec.channels <= 0 || codec.block_align != codec.channels * format->bytes)
    return error(Code::kDataLoss, "its samples are " + codec.codec + " of " +
                                      std::to_string(codec.channels) + " channels in " +
                                      std::to_string(codec.block_align) + " bytes");
  SPDLD_TRY(check_channels(codec.channels));
  channels_ = Channels::of(codec.channels, codec.channel_layout);
  const auto frame = static_cast<std::uint64_t>(codec.block_align);
  const auto begin = static_cast<std::uint64_t>(span.begin());
  const auto count = static_cast<std::uint64_t>(span.end() - span.begin());
  const std::uint64_t held = bytes.size() / frame;
  if (begin < clip.bytes_first_sample || begin - clip.bytes_first_sample + count > held)
    return error(Code::kDataLoss, "it is cut off: of its samples " + std::to_string(begin) +
                                      " to " + std::to_string(begin + count) +
                                      " not all are there");
  return read_samples(
      {.format = *format,
       .sample_rate = codec.sample_rate,
       .channels = codec.channels,
       .data = bytes.subspan((begin - clip.bytes_first_sample) * frame, count * frame)},
      sound, room_bytes);
}

Result<bool> AudioReader::decode_packets(Bytes bytes, const MediaClip& clip, const ClipSpan& span) {
  const StreamInfo& stream = clip.stream;
  const AVRational time_base{static_cast<int>(stream.time_base.num),
                             static_cast<int>(stream.time_base.den)};
  if (parameters_ == nullptr) parameters_.reset(avcodec_parameters_alloc());
  if (packet_ == nullptr) packet_.reset(av_packet_alloc());
  if (packet_ == nullptr || parameters_ == nullptr)
    return tl::unexpected<Status>(no_memory("an FFmpeg packet"));
  SPDLD_TRY(set_audio_parameters(*stream.codec, *parameters_));
  // A packet of which the encoder's padding is cut off is the first one of the stream's sound.
  const bool from_begin = !clip.packets.empty() && clip.packets.front().skip_samples > 0;
  if (!from_begin && parameters_->codec_id == AV_CODEC_ID_OPUS) clear_opus_preskip(*parameters_);
  SPDLD_TRY(decoder_.begin(*parameters_, time_base, options_.max_channels));
  const SampleClock clock{.time_base = time_base,
                          .begin_pts = clip.begin_pts,
                          .sample_rate = stream.codec->sample_rate,
                          .initial_padding = stream.codec->initial_padding};
  if (!from_begin) decoder_.place_by(clock);
  for (const MediaPacket& packet : clip.packets) {
    if (window_.is_full()) break;
    SPDLD_TRY(make_packet(bytes, packet));
    if (is_tag(parameters_->codec_id, *packet_)) continue;
    auto decoded = decoder_.decode(packet_.get(), window_);
    av_packet_unref(packet_.get());
    if (decoded) {
      if (!*decoded) return false;
      continue;
    }
    // A packet before the window may lack those that it refers to.
    const bool before =
        packet.pts != kNoTime && clock.sample_at(packet.pts + packet.duration, 0) <= span.begin();
    if (!before || decoded.error().code() != Code::kDataLoss) return decoded;
    SPDLD_TRY(decoder_.begin(*parameters_, time_base, options_.max_channels));
    decoder_.place_by(clock);
  }
  if (window_.is_full()) return true;
  return decoder_.decode(nullptr, window_);
}

Status AudioReader::make_packet(Bytes bytes, const MediaPacket& packet) {
  if (packet.offset > bytes.size() || packet.size_bytes > bytes.size() - packet.offset)
    return {Code::kDataLoss, "it is cut off: a packet of its sound is not there"};
  if (packet.size_bytes > kMostPacket)
    return {Code::kDataLoss,
            "a packet of its sound has " + std::to_string(packet.size_bytes) + " bytes"};
  const std::size_t size = std::size_t{packet.size_bytes} + AV_INPUT_BUFFER_PADDING_SIZE;
  av_packet_unref(packet_.get());
  // The decoder may hold the last packet's memory for a while.
  if (packet_bytes_ == nullptr || packet_bytes_->size < size ||
      av_buffer_is_writable(packet_bytes_.get()) == 0)
    packet_bytes_.reset(av_buffer_alloc(std::max<std::size_t>(size, 16384)));
  if (packet_bytes_ == nullptr) return no_memory("an FFmpeg packet", size);
  std::memcpy(packet_bytes_->data, bytes.data() + packet.offset, packet.size_bytes);
  std::memset(packet_bytes_->data + packet.size_bytes, 0, AV_INPUT_BUFFER_PADDING_SIZE);
  packet_->buf = av_buffer_ref(packet_bytes_.get());
  if (packet_->buf == nullptr) return no_memory("an FFmpeg packet");
  packet_->data = packet_bytes_->data;
  packet_->size = static_cast<int>(packet.size_bytes);
  packet_->pts = packet.pts == kNoTime ? AV_NOPTS_VALUE : packet.pts;
  packet_->dts = packet.dts == kNoTime ? AV_NOPTS_VALUE : packet.dts;
  packet_->duration = packet.duration;
  packet_->flags = (packet.key ? AV_PKT_FLAG_KEY : 0) | (packet.discard ? AV_PKT_FLAG_DISCARD : 0);
  if (packet.skip_samples == 0 && packet.discard_samples == 0) return {};
  constexpr std::size_t kSideBytes = 10;
  std::uint8_t* const side =
      av_packet_new_side_data(packet_.get(), AV_PKT_DATA_SKIP_SAMPLES, kSideBytes);
  if (side == nullptr) return no_memory("an FFmpeg packet");
  std::memset(side, 0, kSideBytes);
  AV_WL32(side, packet.skip_samples);
  AV_WL32(side + 4, packet.discard_samples);
  return {};
}

std::uint64_t AudioReader::kept_bytes() const {
  // Codecs and packets keep less than this.
  constexpr std::uint64_t kSmall = std::uint64_t{1} << 20;
  return scratch_.capacity() * sizeof(float) + kSmall;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/probe/prober.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/no_memory.h"
#include "media/audio/wav_samples.h"
#include "media/container/codecs.h"
#include "media/probe/stream_probe.h"

namespace spdld::media {
namespace {

// To be raised where this code finds something else in a file than before.
constexpr int kFindings = 6;

std::string version_text(unsigned version) {
  return std::to_string(AV_VERSION_MAJOR(version)) + "." +
         std::to_string(AV_VERSION_MINOR(version)) + "." +
         std::to_string(AV_VERSION_MICRO(version));
}

// How many samples the header of a flac or mp3 file says that there are. Such files are often cut
// off between two packets, or put one behind the other, which nothing else shows.
StreamProbe::ToldSamples told_samples(const Demuxer& demuxer, const AVStream& stream) {
  const AVCodecParameters& codec = *stream.codecpar;
  if (demuxer.is_format("flac") && codec.codec_id == AV_CODEC_ID_FLAC) {
    // STREAMINFO has them in 36 bits.
    constexpr int kSamplesAt = 13;
    if (codec.extradata_size < kSamplesAt + 5) return {};
    std::int64_t samples = codec.extradata[kSamplesAt] & 0x0F;
    for (int i = 1; i < 5; ++i) samples = samples << 8 | codec.extradata[kSamplesAt + i];
    if (samples == 0) return {};
    return {.least = samples, .most = samples};
  }
  // Where there is a Xing header its number of frames is the duration; else FFmpeg guesses it.
  const bool is_told = demuxer.is_format("mp3") && stream.duration > 0 &&
                       demuxer.context().duration_estimation_method == AVFMT_DURATION_FROM_STREAM;
  if (!is_told || codec.sample_rate <= 0) return {};
  // Some encoders count the frame of the header, too.
  constexpr std::int64_t kSlack = 2 * 1152;
  const std::int64_t samples =
      av_rescale_q(stream.duration, stream.time_base, {1, codec.sample_rate});
  return {.least = samples - kSlack, .most = samples + kSlack};
}

// Streams without these are probed from an mp4 file's header alone.
bool needs_bytes(const std::vector<std::unique_ptr<StreamProbe>>& streams) {
  return std::any_of(streams.begin(), streams.end(),
                     [](const auto& stream) { return stream != nullptr && stream->needs_bytes(); });
}

bool is_media(const AVStream& stream) {
  const AVMediaType type = stream.codecpar->codec_type;
  return type == AVMEDIA_TYPE_VIDEO || type == AVMEDIA_TYPE_AUDIO;
}

// "video (wmv3), audio (wmav2)"
std::string streams_of(const Demuxer& demuxer) {
  std::string text;
  constexpr int kMostShown = 8;
  for (int i = 0; i < demuxer.streams() && i < kMostShown; ++i) {
    const AVCodecParameters& codec = *demuxer.stream(i).codecpar;
    const char* type = av_get_media_type_string(codec.codec_type);
    const bool picture = (demuxer.stream(i).disposition & AV_DISPOSITION_ATTACHED_PIC) != 0;
    text += text.empty() ? "" : ", ";
    text += picture ? "attached picture" : type == nullptr ? "unknown" : type;
    text += std::string(" (") + avcodec_get_name(codec.codec_id) + ")";
  }
  return text.empty() ? "none" : text;
}

class FileProbe {
 public:
  FileProbe(ByteReader& reader, const MediaLimits& limits, Demuxer& demuxer)
      : reader_(reader), limits_(limits), demuxer_(demuxer), finder_(reader) {}

  Result<MediaFile> run() {
    SPDLD_TRY(choose());
    SPDLD_ASSIGN(const std::optional<WavSamples> wav, wav_samples(demuxer_, reader_));
    if (wav.has_value()) return pcm_file(*wav);
    PacketFinder* finder = &finder_;
    if (demuxer_.is_format("mov") && !needs_bytes(streams_)) {
      demuxer_.skip_media();
      finder = nullptr;
    }
    SPDLD_TRY(read(finder));
    if (finder == nullptr) SPDLD_TRY(look_at_keys());
    return finish();
  }

 private:
  Status choose() {
    bool any = false;
    for (int i = 0; i < demuxer_.streams(); ++i) {
      const AVStream& stream = demuxer_.stream(i);
      std::unique_ptr<StreamProbe>& probe = streams_.emplace_back();
      if (!is_media(stream)) continue;
      const MediaCodec* codec = StreamProbe::codec_of(stream);
      if (codec == nullptr) {
        if ((stream.disposition & AV_DISPOSITION_ATTACHED_PIC) == 0)
          faults_.insert(std::string("a stream whose codec is not decoded (") +
                         avcodec_get_name(stream.codecpar->codec_id) + ")");
        continue;
      }
      if (is_encrypted(stream)) {
        return {Code::kInvalidArgument, "the media file is encrypted, which is not read"};
      }
      probe = std::make_unique<StreamProbe>(stream, *codec, reader_, limits_.max_pixels);
      probe->set_told_samples(told_samples(demuxer_, stream));
      any = true;
    }
    if (any) return {};
    return {
        Code::kInvalidArgument,
        "no stream of video or sound in it can be decoded; its streams: " + streams_of(demuxer_)};
  }

  static bool is_encrypted(const AVStream& stream) {
    return av_stream_get_side_data(&stream, AV_PKT_DATA_ENCRYPTION_INIT_INFO, nullptr) != nullptr;
  }

  Status read(PacketFinder* finder) {
    const AvPtr<AVPacket> packet(av_packet_alloc());
    if (packet == nullptr) return no_memory("a packet");
    for (std::uint64_t packets = 0;;) {
      const Result<bool> more = demuxer_.read(*packet);
      if (!more) {
        // A file that FFmpeg cannot go on with after some packets is damaged from there on.
        if (more.error().code() != Code::kDataLoss || demuxer_.is_broken() || packets == 0)
          return more.error();
        faults_.insert("damaged within");
        return {};
      }
      if (!*more) return {};
      if (++packets > limits_.max_packets) {
        return {Code::kResourceExhausted, "the media file has more packets than the limit of " +
                                              std::to_string(limits_.max_packets)};
      }
      // Streams that only show up later are none of the headers'.
      const auto index = static_cast<std::size_t>(packet->stream_index);
      if (index >= streams_.size() || streams_[index] == nullptr) continue;
      if (av_packet_get_side_data(packet.get(), AV_PKT_DATA_ENCRYPTION_INFO, nullptr) != nullptr)
        return {Code::kInvalidArgument, "the media file is encrypted, which is not read"};
      SPDLD_TRY(streams_[index]->add(*packet, finder));
      if (streams_[index]->seconds() > static_cast<double>(limits_.max_seconds)) {
        return {Code::kResourceExhausted, "the media file is longer than the limit of " +
                                              std::to_string(limits_.max_seconds) + " seconds"};
      }
    }
  }

  Status look_at_keys() {
    for (const std::unique_ptr<StreamProbe>& stream : streams_) {
      if (stream != nullptr) SPDLD_TRY(stream->look_at_keys());
    }
    return {};
  }

  Result<MediaFile> finish() {
    MediaFile file;
    file.format = demuxer_.format();
    for (const std::unique_ptr<StreamProbe>& stream : streams_) {
      if (stream == nullptr) continue;
      if (!stream->finish(file.streams.emplace_back(), faults_)) file.streams.pop_back();
    }
    if (file.streams.empty() && faults_ == std::set<std::string>{"sound without samples"})
      return error(Code::kInvalidArgument, "its sound has no samples: there is nothing to read");
    if (file.streams.empty()) {
      return error(Code::kInvalidArgument,
                   "no stream of video or sound in it can be read: " + *faults_.begin() +
                       "; remux it: ffmpeg -fflags +genpts -i FILE -c copy NEW.mp4");
    }
    file.faults.assign(faults_.begin(), faults_.end());
    return file;
  }

  Result<MediaFile> pcm_file(const WavSamples& wav) {
    if (wav.cut_off) faults_.insert("the file ends before its header says");
    streams_[0]->set_pcm(wav.offset, wav.samples);
    return finish();
  }

  ByteReader& reader_;
  const MediaLimits& limits_;
  Demuxer& demuxer_;
  PacketFinder finder_;
  std::vector<std::unique_ptr<StreamProbe>> streams_;  // null: not decoded
  std::set<std::string> faults_;
};

}  // namespace

Result<MediaFile> probe(ByteReader& reader, const MediaLimits& limits, std::stop_token stop) {
  SPDLD_ASSIGN(Demuxer demuxer, Demuxer::open(reader, limits, std::move(stop)));
  return FileProbe(reader, limits, demuxer).run();
}

std::string probe_version(const MediaLimits& limits) {
  return "prober " + std::to_string(kFindings) + ", avformat " + version_text(avformat_version()) +
         ", avcodec " + version_text(avcodec_version()) + " (" + avcodec_configuration() +
         "), at most " + std::to_string(limits.max_streams) + " streams, " +
         std::to_string(limits.max_packets) + " packets, " + std::to_string(limits.max_pixels) +
         " pixels, " + std::to_string(limits.max_seconds) + " seconds";
}

}  // namespace spdld::media

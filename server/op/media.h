// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

// These plain values tell of a video or audio file before any of it is decoded: media/ finds them
// by demuxing, source/ keeps them and cuts clips by them, and neither knows the other.
namespace spdld {

// num / den, as in a time base: 1/90000 of a second.
struct Ratio {
  std::int64_t num = 0;
  std::int64_t den = 1;

  double value() const { return static_cast<double>(num) / static_cast<double>(den); }
  friend bool operator==(const Ratio&, const Ratio&) = default;
};

// A time that the container does not tell.
inline constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();
// No time of a file that is read is further from zero than this, in its stream's time base, so that
// sums and differences of times never leave the numbers that there are.
inline constexpr std::int64_t kMostTime = std::int64_t{1} << 58;
inline bool is_possible_time(std::int64_t time) { return time >= -kMostTime && time <= kMostTime; }

// One packet of a stream; packets stand in decoding order.
struct MediaPacket {
  std::uint64_t offset = 0;  // of its bytes: in the file; in a clip, in the clip's bytes
  std::uint32_t size_bytes = 0;
  bool key = false;
  // Decoded because others need it, and not shown: before an edit list's begin, for example.
  bool discard = false;
  // In the stream's time base. Of audio it counts the samples that the packets before this one
  // decode to, from the time of the first one on, without those that are cut off once any were
  // heard.
  std::int64_t pts = kNoTime;
  std::int64_t dts = kNoTime;
  std::int64_t duration = 0;  // of audio: samples that it decodes to
  // So many audio samples are cut off what the packet decodes to, for encoder delay and padding.
  std::uint32_t skip_samples = 0;
  std::uint32_t discard_samples = 0;
  // In a clip: packets that stand in the file between it and the one before it were left out.
  bool gap = false;

  friend bool operator==(const MediaPacket&, const MediaPacket&) = default;
};

// The times of a stream of sound leap forward: between two of its samples there is silence.
struct SoundGap {
  std::int64_t before = 0;   // the sample behind the silence
  std::int64_t samples = 0;  // of silence

  friend bool operator==(const SoundGap&, const SoundGap&) = default;
};

// A decoder is opened with these: FFmpeg's AVCodecParameters, with names in place of numbers that
// differ between FFmpeg's versions.
struct CodecParameters {
  std::string codec;  // "h264", "pcm_s16le": the codec's name
  std::uint32_t tag = 0;
  std::vector<std::byte> extradata;
  std::int64_t bit_rate = 0;
  int profile = -99;
  int level = -99;
  int bits_per_coded_sample = 0;
  int bits_per_raw_sample = 0;

  // Video has these.
  int width = 0;
  int height = 0;
  std::string pixel_format;  // "yuv420p"; empty: the decoder will tell
  Ratio sample_aspect{};
  std::string color_range;  // FFmpeg's names; empty or "unknown": not told
  std::string color_space;
  std::string color_primaries;
  std::string color_transfer;
  std::string chroma_location;
  int reorder_frames = 0;  // AVCodecParameters::video_delay

  // Audio has these.
  int sample_rate = 0;
  int channels = 0;
  std::string channel_layout;  // "stereo", "5.1"
  std::string sample_format;   // "fltp"; empty: the decoder will tell
  int block_align = 0;
  int frame_size = 0;
  int initial_padding = 0;
  int trailing_padding = 0;
  int seek_preroll = 0;

  friend bool operator==(const CodecParameters&, const CodecParameters&) = default;
};

// One stream of a media file, without its packets.
struct StreamInfo {
  enum class Kind : std::uint8_t { kVideo = 1, kAudio = 2 };
  // How a clip's bytes become packets.
  enum class Access : std::uint8_t {
    // The bytes of each packet stand in the file as the decoder wants them, at MediaPacket::offset.
    kPackets = 1,
    // Uncompressed audio: sample n begins at pcm_offset + n * codec->block_align. There are no
    // packets.
    kPcm = 2,
    // Packets must be taken out by a demuxer, which is given the whole file (MPEG-TS, Ogg).
    kDemux = 3,
  };

  Kind kind = Kind::kVideo;
  Access access = Access::kPackets;
  int index = 0;          // in the file, as `ffprobe` numbers streams
  Ratio time_base{1, 1};  // of audio: one sample
  // Degrees by which pictures must be turned clockwise to stand upright: 0, 90, 180, 270; and
  // whether they are mirrored left to right before that.
  int rotation = 0;
  bool mirrored = false;
  // Audio has so many that are heard, at codec->sample_rate, delay and padding cut off.
  std::uint64_t samples = 0;
  // Of audio: its times go back, or leap too often or too far, so that its samples cannot be placed
  // beside a video.
  bool is_off_clock = false;
  // Of video: each picture renews a part, so that a decoder that begins at a key picture has whole
  // pictures only some pictures later (op/gradual_refresh.h).
  bool refreshes_gradually = false;
  // When the last frame ends, where it is told; else kNoTime.
  std::int64_t end_pts = kNoTime;
  std::uint64_t pcm_offset = 0;
  std::shared_ptr<const CodecParameters> codec;
};

// A stream with all that its container says of its packets.
struct MediaStream {
  StreamInfo info;
  std::string language;  // ISO 639-2 as the container has it; empty: not told
  bool is_default = false;
  // Video has the times of the pictures that are shown, ascending: the packets' pts but for those
  // that are discarded.
  std::vector<std::int64_t> frame_pts;
  std::vector<MediaPacket> packets;  // none for kPcm and kDemux
  // Of audio with packets, ascending; SoundGap::before is on the clock of the packets' pts, which
  // closes the gaps. At most kMostGaps, and none if info.is_off_clock.
  std::vector<SoundGap> gaps;

  static constexpr std::size_t kMostGaps = 4096;
};

struct MediaFile {
  std::string format;                // "mov,mp4,m4a,3gp,3g2,mj2": the demuxer's name
  std::vector<MediaStream> streams;  // those that can be decoded, in the file's order
  // Each is a fault of the headers though the streams can be read, such as "no durations".
  std::vector<std::string> faults;
};

// The clip that a part's bytes are of: which packets these are, and what of the decoded stream is
// wanted. Made by the source for each fetch, in memory that is reused.
struct MediaClip {
  StreamInfo stream;
  // In decoding order; offsets count from the first of the clip's bytes. A packet that several
  // sub-clips need stands once. Empty for kPcm and kDemux.
  std::vector<MediaPacket> packets;
  // The pts of the wanted frames of a video in the order in which they are delivered, `repeats`
  // times as many as a clip has. A clip that is padded or looped may repeat one.
  std::vector<std::int64_t> frames;
  std::size_t repeats = 1;
  // Of audio, `samples` from `first_sample` on are wanted, on the clock of MediaStream::samples;
  // what lies beyond the stream's end is silence (or, if `loop`, the same from `first_sample` on
  // again). For kPcm the clip's bytes begin at `bytes_first_sample`.
  std::uint64_t first_sample = 0;
  std::uint64_t samples = 0;
  // So much silence comes before that, where a video begins before its sound; the first
  // `silence_before` of `samples` are that silence.
  std::uint64_t silence_before = 0;
  // Further silence between samples, on the clock of `first_sample`, ascending; part of `samples`
  // likewise.
  std::vector<SoundGap> gaps;
  bool loop = false;
  std::uint64_t bytes_first_sample = 0;
  // Sample 0 of a stream of audio in packets is heard at this time.
  std::int64_t begin_pts = 0;

  void clear() {
    stream = {};
    packets.clear();
    frames.clear();
    gaps.clear();
    repeats = 1;
    first_sample = samples = silence_before = bytes_first_sample = 0;
    begin_pts = 0;
    loop = false;
  }
};

// All clips of a source's field have this in common, so that ops can plan their rows.
struct ClipShape {
  // Clips of sound in files of one sample rate.
  struct OfRate {
    int sample_rate = 0;
    std::int64_t samples = 0;  // of each clip

    friend bool operator==(const OfRate&, const OfRate&) = default;
  };
  static constexpr std::size_t kMostRates = 16;

  StreamInfo::Kind kind = StreamInfo::Kind::kVideo;
  std::int64_t frames = 0;   // of video, of each clip
  std::int64_t repeats = 0;  // clips of one item, a leading dimension; 0: one, without it
  // Audio has these; 0: they are not the same in all files.
  int sample_rate = 0;
  int channels = 0;
  std::int64_t samples = 0;      // of each clip; 0: they differ
  std::int64_t max_samples = 0;  // of the longest clip
  double max_seconds = 0;        // likewise; 0: unknown
  bool is_whole = false;         // each clip is all the sound of its file
  // Each clip is as one of these; empty: they differ in more than kMostRates ways, or it is not
  // known.
  std::vector<OfRate> of_rates{};
  // Of video, of upright pictures. 0: they are not the same in all files, of which `sizes` then
  // names two: "a.mp4 has 640x360 pixels, b.mp4 1280x720".
  int width = 0;
  int height = 0;
  std::string sizes{};
  // The largest of all.
  int max_width = 0;
  int max_height = 0;

  friend bool operator==(const ClipShape&, const ClipShape&) = default;
};

}  // namespace spdld

// SPDX-License-Identifier: Apache-2.0
#include "media/probe/prober.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/inotify.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Access = StreamInfo::Access;
using Kind = StreamInfo::Kind;
using Bytes = std::vector<std::byte>;
using Rows = std::vector<std::vector<std::string>>;

MediaFile probed(const Bytes& bytes, const MediaLimits& limits = {}) {
  MemoryReader reader(bytes);
  Result<MediaFile> file = probe(reader, limits);
  EXPECT_TRUE(file) << file.error().message();
  return file ? *std::move(file) : MediaFile{};
}

Status probe_refusal(const Bytes& bytes, const MediaLimits& limits = {}) {
  MemoryReader reader(bytes);
  const Result<MediaFile> file = probe(reader, limits);
  return file ? Status() : file.error();
}

std::string time_text(std::int64_t time) { return time == kNoTime ? "N/A" : std::to_string(time); }

std::string selector(const MediaStream& stream) { return std::to_string(stream.info.index); }

std::string checksum_of(const Bytes& file, const MediaPacket& packet) {
  if (packet.offset + packet.size_bytes > file.size()) return "beyond the file";
  std::array<char, 20> text{};
  std::snprintf(
      text.data(), text.size(), "CRC32:%08lx",
      ::crc32(0, reinterpret_cast<const Bytef*>(file.data() + packet.offset), packet.size_bytes));
  return text.data();
}

// The packets of the index are those that ffprobe shows, and their bytes stand in the file.
// `with_times`: ffprobe tells when pictures are shown.
void expect_packets_of_ffprobe(const MediaMaker& maker, const std::string& name, const Bytes& file,
                               const MediaStream& stream, bool with_times) {
  SCOPED_TRACE(name + ", stream " + selector(stream));
  with_times = with_times && stream.info.kind == Kind::kVideo;
  const Rows shown = maker.probe(name, selector(stream), "packet",
                                 {"size", "flags", "data_hash", "pts", "pts_time"});
  Rows seen;
  for (const MediaPacket& packet : stream.packets) {
    std::string flags = packet.key ? "K" : "_";
    flags += packet.discard ? "D" : "_";
    seen.push_back({std::to_string(packet.size_bytes), flags, checksum_of(file, packet),
                    with_times ? time_text(packet.pts) : ""});
  }
  Rows expected;
  for (const std::vector<std::string>& row : shown)
    expected.push_back({row[0], row[1], row[2], with_times ? row[3] : ""});
  EXPECT_EQ(seen, expected);
  if (stream.info.kind == Kind::kVideo) return;
  // Sound goes by samples: each packet begins where the one before ends.
  EXPECT_EQ(stream.info.time_base, (Ratio{1, stream.info.codec->sample_rate}));
  for (std::size_t i = 1; i < stream.packets.size(); ++i)
    EXPECT_EQ(stream.packets[i].pts, stream.packets[i - 1].pts + stream.packets[i - 1].duration);
  if (!shown.empty() && shown[0][3] != "N/A") {
    const double told = std::stod(shown[0][4]);
    EXPECT_NEAR(static_cast<double>(stream.packets[0].pts) * stream.info.time_base.value(), told,
                0.001);
  }
}

// The frames that ffprobe's decoder shows, by their times.
void expect_frames_of_ffprobe(const MediaMaker& maker, const std::string& name,
                              const MediaStream& stream) {
  SCOPED_TRACE(name + ", stream " + selector(stream));
  std::vector<std::string> expected;
  for (const std::vector<std::string>& row :
       maker.probe(name, selector(stream), "frame", {"best_effort_timestamp"}))
    expected.push_back(row[0]);
  std::vector<std::string> seen;
  for (const std::int64_t time : stream.frame_pts) seen.push_back(std::to_string(time));
  // Of the last picture of an avi file FFmpeg does not tell the time.
  if (!expected.empty() && expected.back() == "N/A") expected.back() = seen.back();
  EXPECT_EQ(seen, expected);
}

std::uint64_t decoded_samples(const MediaMaker& maker, const std::string& name,
                              const MediaStream& stream) {
  const std::string bytes =
      maker.output("ffmpeg -nostdin -v error -i " + name + " -map 0:" + selector(stream) +
                   " -f s16le -c:a pcm_s16le - | wc -c");
  const int channels = stream.info.codec->channels;
  EXPECT_GT(channels, 0);
  return channels <= 0 ? 0 : std::stoull(bytes) / 2 / static_cast<std::uint64_t>(channels);
}

struct Expected {
  Access access = Access::kPackets;
  std::string codec;
  bool frames = true;  // ffprobe's decoder shows the very frames
};

// Makes the file, probes it, and compares its first stream with what FFmpeg's tools tell of it.
MediaFile expect_probed(const MediaMaker& maker, const std::string& arguments,
                        const std::string& name, const Expected& expected) {
  SCOPED_TRACE(arguments + name);
  const Bytes bytes = maker.make(arguments, name);
  const MediaFile file = probed(bytes);
  EXPECT_FALSE(file.streams.empty());
  for (const MediaStream& stream : file.streams) {
    if (stream.info.access == Access::kPackets) {
      expect_packets_of_ffprobe(maker, name, bytes, stream, expected.frames);
    } else {
      EXPECT_THAT(stream.packets, IsEmpty());
    }
    if (stream.info.kind == Kind::kVideo) {
      expect_frames_of_ffprobe(maker, name, stream);
    } else {
      EXPECT_EQ(stream.info.samples, decoded_samples(maker, name, stream));
    }
  }
  if (!file.streams.empty()) {
    EXPECT_EQ(file.streams[0].info.codec->codec, expected.codec);
    EXPECT_EQ(file.streams[0].info.access, expected.access);
  }
  return file;
}

TEST(Prober, IndexesVideoOfEveryContainerAsFfprobeDoes) {
  const MediaMaker maker;
  const std::string video = moving_pictures(60);
  const std::string x264 = "-c:v libx264 -g 20 -bf 3 ";
  for (const auto& [arguments, name, expected] :
       std::vector<std::tuple<std::string, std::string, Expected>>{
           {video + x264, "end.mp4", {Access::kPackets, "h264"}},
           {video + x264 + "-movflags faststart ", "begin.mp4", {Access::kPackets, "h264"}},
           {video + x264 + "-movflags frag_keyframe+empty_moov ",
            "pieces.mp4",
            {Access::kPackets, "h264"}},
           {video + x264, "a.mkv", {Access::kPackets, "h264"}},
           {video + x264 + "-f matroska -live 1 ", "without_cues.mkv", {Access::kPackets, "h264"}},
           {video + "-c:v libx264 -x264-params open-gop=1:keyint=12:bframes=3 ",
            "open.mp4",
            {Access::kPackets, "h264"}},
           {video + "-c:v libx265 -x265-params log-level=none:keyint=20 ",
            "h265.mp4",
            {Access::kPackets, "hevc"}},
           {video + "-c:v libx265 -pix_fmt yuv420p10le -x265-params log-level=none ",
            "ten.mkv",
            {Access::kPackets, "hevc"}},
           {video + "-c:v libvpx -b:v 300k -auto-alt-ref 1 -lag-in-frames 16 ",
            "vp8.webm",
            {Access::kPackets, "vp8"}},
           {video + "-c:v libvpx-vp9 -b:v 200k -cpu-used 8 ",
            "vp9.webm",
            {Access::kPackets, "vp9"}},
           {video + "-c:v libsvtav1 -preset 12 -svtav1-params keyint=30 ",
            "av1.mkv",
            {Access::kPackets, "av1"}},
           {video + "-c:v mpeg4 -g 15 ", "no_b.avi", {Access::kPackets, "mpeg4"}},
           {video + "-c:v mpeg4 -bf 2 -g 15 ", "b.avi", {Access::kPackets, "mpeg4", false}},
           {video + "-c:v mpeg4 -bf 2 -g 15 ", "mpeg4.mp4", {Access::kPackets, "mpeg4"}},
           {video + "-c:v mjpeg ", "motion.avi", {Access::kPackets, "mjpeg"}},
           {video + "-c:v prores_ks ", "prores.mov", {Access::kPackets, "prores"}},
           {video + "-c:v mpeg2video -bf 2 ", "mpeg2.mkv", {Access::kPackets, "mpeg2video"}},
           {video + x264, "stream.ts", {Access::kDemux, "h264"}},
       })
    expect_probed(maker, arguments, name, expected);
}

TEST(Prober, CountsTheSamplesThatFfmpegDecodes) {
  const MediaMaker maker;
  const std::string sound = some_sound(1.33, 44100);
  for (const auto& [arguments, name, expected] :
       std::vector<std::tuple<std::string, std::string, Expected>>{
           {sound + "-c:a aac ", "a.m4a", {Access::kPackets, "aac"}},
           {sound + "-c:a aac ", "a.aac", {Access::kPackets, "aac"}},
           {sound + "-c:a aac ", "aac.mkv", {Access::kPackets, "aac"}},
           {sound + "-c:a aac ", "aac.ts", {Access::kDemux, "aac"}},
           {sound + "-c:a libmp3lame ", "a.mp3", {Access::kPackets, "mp3"}},
           {sound + "-c:a libmp3lame -write_xing 0 ", "no_xing.mp3", {Access::kPackets, "mp3"}},
           {some_sound(1.33, 16000) + "-c:a libmp3lame ", "slow.mp3", {Access::kPackets, "mp3"}},
           {sound + "-c:a libmp3lame ", "mp3.mkv", {Access::kPackets, "mp3"}},
           {sound + "-c:a libmp3lame ", "mp3.mp4", {Access::kPackets, "mp3"}},
           {sound + "-c:a libmp3lame ", "mp3.avi", {Access::kPackets, "mp3"}},
           {sound + "-c:a flac ", "a.flac", {Access::kPackets, "flac"}},
           {sound + "-c:a flac ", "flac.mkv", {Access::kPackets, "flac"}},
           {sound + "-c:a flac ", "flac.ogg", {Access::kPackets, "flac"}},
           {sound + "-c:a flac -strict -2 ", "flac.mp4", {Access::kPackets, "flac"}},
           {sound + "-c:a alac ", "alac.m4a", {Access::kPackets, "alac"}},
           {sound + "-c:a libopus ", "a.opus", {Access::kPackets, "opus"}},
           {sound + "-c:a libopus ", "opus.webm", {Access::kPackets, "opus"}},
           {sound + "-c:a libopus -strict -2 ", "opus.mp4", {Access::kPackets, "opus"}},
           {sound + "-c:a libvorbis ", "a.ogg", {Access::kPackets, "vorbis"}},
           {sound + "-c:a libvorbis ", "vorbis.webm", {Access::kPackets, "vorbis"}},
           {sound + "-c:a mp2 ", "mp2.mkv", {Access::kPackets, "mp2"}},
           {sound + "-c:a ac3 ", "ac3.mkv", {Access::kPackets, "ac3"}},
           {sound + "-c:a pcm_s16le ", "pcm.mkv", {Access::kPackets, "pcm_s16le"}},
           {sound + "-c:a pcm_s16le ", "pcm.mov", {Access::kPackets, "pcm_s16le"}},
       })
    expect_probed(maker, arguments, name, expected);
}

TEST(Prober, FindsWhereTheSamplesOfAWavLie) {
  const MediaMaker maker;
  for (const std::string codec : {"pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le",
                                  "pcm_f64le", "pcm_alaw", "pcm_mulaw"}) {
    for (const int channels : {1, 2, 6}) {
      SCOPED_TRACE(codec + " of " + std::to_string(channels));
      const Bytes bytes = maker.make(
          some_sound(0.3) + "-ac " + std::to_string(channels) + " -c:a " + codec, "a.wav");
      const MediaFile file = probed(bytes);
      ASSERT_EQ(file.streams.size(), 1U);
      const StreamInfo& info = file.streams[0].info;
      EXPECT_EQ(info.access, Access::kPcm);
      EXPECT_EQ(info.samples, 4800U);
      EXPECT_EQ(info.codec->codec, codec);
      EXPECT_EQ(info.codec->channels, channels);
      const Bytes raw = maker.make("-i a.wav -map 0:a -c copy -f data", "raw");
      ASSERT_EQ(raw.size(), info.samples * static_cast<std::size_t>(info.codec->block_align));
      ASSERT_LE(info.pcm_offset + raw.size(), bytes.size());
      EXPECT_EQ(std::memcmp(bytes.data() + info.pcm_offset, raw.data(), raw.size()), 0);
      EXPECT_THAT(file.faults, IsEmpty());
    }
  }
}

// Where a name stands in the file, plus `more`.
std::size_t place_of(const Bytes& bytes, std::string_view name, std::size_t more = 0) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t found = text.find(name);
  EXPECT_NE(found, std::string_view::npos) << name;
  return found + more;
}

void put_number(Bytes& bytes, std::size_t at, std::uint32_t value) {
  ASSERT_LE(at + 4, bytes.size());
  for (std::size_t i = 0; i < 4; ++i)
    bytes[at + i] = static_cast<std::byte>(value >> (24 - 8 * i) & 0xFF);
}

TEST(Prober, FollowsEditListsAsFfmpegDoes) {
  const MediaMaker maker;
  maker.make(moving_pictures(75) + some_sound(3) + "-c:v libx264 -g 25 -bf 3 -c:a aac ",
             "whole.mp4");
  const Expected expected{Access::kPackets, "h264"};
  const MediaFile cut = expect_probed(maker, "-ss 0.5 -i whole.mp4 -c copy ", "cut.mp4", expected);
  ASSERT_EQ(cut.streams.size(), 2U);
  EXPECT_TRUE(std::any_of(cut.streams[0].packets.begin(), cut.streams[0].packets.end(),
                          [](const MediaPacket& packet) { return packet.discard; }));
  expect_probed(maker, "-itsoffset 0.7 -i whole.mp4 -c copy ", "late.mp4", expected);
  expect_probed(maker, "-i whole.mp4 -itsoffset 0.7 -i whole.mp4 -map 0:v -map 1:a -c copy ",
                "late_sound.mp4", expected);
}

TEST(Prober, KeepsTimesOfVariableFrameRates) {
  const MediaMaker maker;
  const MediaFile file = expect_probed(
      maker,
      moving_pictures(40) + "-vf setpts='(N+floor(N/7)*3)/25/TB' -vsync vfr -c:v libx264 -bf 2 ",
      "vfr.mp4", {Access::kPackets, "h264"});
  const std::vector<std::int64_t>& times = file.streams.at(0).frame_pts;
  ASSERT_EQ(times.size(), 40U);
  EXPECT_NE(times[7] - times[6], times[6] - times[5]);
}

// By how many degrees FFmpeg turns a picture clockwise: its white corner was at the top left.
int turned_by(const MediaMaker& maker, const std::string& name) {
  const Bytes gray =
      maker.make("-i " + name + " -frames:v 1 -vf scale=2:2 -pix_fmt gray -f rawvideo", "corners");
  if (gray.size() != 4) return -1;
  constexpr std::array<int, 4> kAngles = {0, 90, 270, 180};
  return kAngles[static_cast<std::size_t>(std::max_element(gray.begin(), gray.end()) -
                                          gray.begin())];
}

TEST(Prober, TellsHowPicturesAreTurned) {
  const MediaMaker maker;
  maker.make(
      "-f lavfi -i color=black:size=64x32,drawbox=w=32:h=16:t=fill:color=white -frames:v 1 "
      "-c:v libx264 ",
      "a.mp4");
  std::set<int> angles;
  for (const int angle : {0, 90, 180, 270}) {
    const MediaFile file = probed(
        maker.make("-i a.mp4 -c copy -metadata:s:v rotate=" + std::to_string(angle), "turned.mp4"));
    ASSERT_EQ(file.streams.size(), 1U);
    EXPECT_EQ(file.streams[0].info.rotation, turned_by(maker, "turned.mp4"));
    EXPECT_FALSE(file.streams[0].info.mirrored);
    angles.insert(file.streams[0].info.rotation);
  }
  EXPECT_EQ(angles.size(), 4U);
  // A matrix that mirrors: x becomes -x.
  Bytes mirrored = maker.bytes_of("a.mp4");
  const std::size_t matrix = place_of(mirrored, "tkhd", 4 + 40);
  put_number(mirrored, matrix, 0xFFFF0000);
  const StreamInfo info = probed(mirrored).streams.at(0).info;
  EXPECT_TRUE(info.mirrored);
  EXPECT_EQ(info.rotation, 0);
}

TEST(Prober, TellsLanguagesAndDefaultsOfStreams) {
  const MediaMaker maker;
  const MediaFile file = probed(
      maker.make(moving_pictures(5) + some_sound(0.2) +
                     "-map 0 -map 1 -map 1 -c:v libx264 -c:a aac -metadata:s:a:0 language=deu "
                     "-metadata:s:a:1 language=fra -disposition:a:0 0 -disposition:a:1 default ",
                 "a.mkv"));
  ASSERT_EQ(file.streams.size(), 3U);
  EXPECT_EQ(file.streams[1].language, "deu");
  EXPECT_EQ(file.streams[2].language, "fra");
  EXPECT_FALSE(file.streams[1].is_default);
  EXPECT_TRUE(file.streams[2].is_default);
}

TEST(Prober, TakesNoCoverForAVideo) {
  const MediaMaker maker;
  maker.make("-f lavfi -i testsrc2=size=64x64 -frames:v 1", "cover.jpg");
  for (const std::string name : {"a.mp3", "a.m4a", "a.flac"}) {
    SCOPED_TRACE(name);
    const MediaFile file = probed(maker.make(
        some_sound(0.5) + "-i cover.jpg -map 0 -map 1 -c:v copy -disposition:v attached_pic ",
        name));
    ASSERT_EQ(file.streams.size(), 1U);
    EXPECT_EQ(file.streams[0].info.kind, Kind::kAudio);
    EXPECT_EQ(file.streams[0].info.samples, decoded_samples(maker, name, file.streams[0]));
  }
}

TEST(Prober, ReadsAHundredStreams) {
  const MediaMaker maker;
  std::string maps;
  for (int i = 0; i < 100; ++i) maps += "-map 0 ";
  const MediaFile file = probed(maker.make(some_sound(0.1) + maps + "-c:a pcm_s16le ", "many.mkv"));
  EXPECT_EQ(file.streams.size(), 100U);
}

TEST(Prober, ReadsOnlyTheHeaderOfAnMp4) {
  // Counts what is read.
  class CountingReader final : public ByteReader {
   public:
    explicit CountingReader(const Bytes& bytes) : memory_(bytes) {}
    std::uint64_t size() const override { return memory_.size(); }
    Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
      Result<std::size_t> count = memory_.read(offset, out);
      if (count) bytes += *count;
      return count;
    }
    std::uint64_t bytes = 0;

   private:
    MemoryReader memory_;
  };
  const MediaMaker maker;
  const Bytes bytes = maker.make(
      moving_pictures(100, "size=640x480:rate=25") + some_sound(4) + "-c:v libx264 -qp 8 -c:a aac ",
      "a.mp4");
  CountingReader reader(bytes);
  ASSERT_TRUE(probe(reader));
  EXPECT_GT(bytes.size(), 1'000'000U);
  EXPECT_LT(reader.bytes, 250'000U);
}

class KeyFrames : public ::testing::TestWithParam<std::string> {};

TEST_P(KeyFrames, AreThoseThatADecoderCanBeginAt) {
  const MediaMaker maker;
  const std::string& name = GetParam();
  const std::string pictures = moving_pictures(90) + "-c:v libx264 -threads 1 -pix_fmt yuv420p ";
  const auto keys = [](const MediaFile& file) {
    const auto& packets = file.streams.at(0).packets;
    return std::count_if(packets.begin(), packets.end(),
                         [](const MediaPacket& packet) { return packet.key; });
  };
  const MediaFile plain = probed(maker.make(pictures + "-g 10 -sc_threshold 0", name));
  EXPECT_FALSE(plain.streams.at(0).info.refreshes_gradually);
  EXPECT_EQ(keys(plain), 9);
  const std::string open_groups = pictures + "-g 10 -sc_threshold 0 -x264-params open-gop=1 ";
  const MediaFile open = probed(maker.make(open_groups, name));
  EXPECT_FALSE(open.streams.at(0).info.refreshes_gradually);
  EXPECT_EQ(keys(open), 9);
  // Without what says that these are points at which to begin.
  EXPECT_EQ(keys(probed(maker.make(open_groups + "-bsf:v filter_units=remove_types=6", name))), 1);
  const MediaFile gradual =
      probed(maker.make(pictures + "-x264-params intra-refresh=1:keyint=10", name));
  EXPECT_TRUE(gradual.streams.at(0).info.refreshes_gradually);
  EXPECT_EQ(keys(gradual), 9);
}

INSTANTIATE_TEST_SUITE_P(Containers, KeyFrames, ::testing::Values("a.mp4", "a.mkv", "a.mov"),
                         [](const auto& name) { return name.param.substr(2); });

// A recording that was cut has pictures before the first key frame, in either order, that need
// those before the cut.
struct CutFilm {
  std::string name;
  std::string options;
};
class CutFilms : public ::testing::TestWithParam<CutFilm> {};

TEST_P(CutFilms, HaveNoPicturesThatNeedThoseBeforeTheCut) {
  const MediaMaker maker;
  const auto& [name, options] = GetParam();
  maker.make(moving_pictures(90) + "-pix_fmt yuv420p " + options, name + ".mkv");
  for (const std::string suffix : {".ts", ".mkv", ".mp4"}) {
    // Elsewhere FFmpeg gives leading B-frames other times, or an open group has no size.
    if (suffix != ".mkv" && name.starts_with("mpeg")) continue;
    if (suffix == ".ts" && name == "h264") continue;
    const std::string cut = name + "_cut" + suffix;
    const Bytes bytes = maker.make("-ss 1.3 -i " + name + ".mkv -c copy -copyts", cut);
    const MediaFile file = probed(bytes);
    ASSERT_EQ(file.streams.size(), 1U) << cut;
    EXPECT_LT(file.streams[0].frame_pts.size(), 85U) << cut;
    expect_frames_of_ffprobe(maker, cut, file.streams[0]);
  }
}

const std::string kX265 = "-c:v libx265 -x265-params log-level=none:pools=1:keyint=15:bframes=4:";
INSTANTIATE_TEST_SUITE_P(
    Codecs, CutFilms,
    ::testing::Values(
        CutFilm{"hevc", kX265 + "open-gop=1"}, CutFilm{"hevc_closed", kX265 + "open-gop=0"},
        CutFilm{"h264",
                "-c:v libx264 -threads 1 -bf 3 -g 15 -sc_threshold 0 -x264-params open-gop=1"},
        CutFilm{"h264_closed", "-c:v libx264 -threads 1 -bf 3 -g 15"},
        CutFilm{"mpeg2", "-c:v mpeg2video -bf 2 -g 15"},
        CutFilm{"mpeg2_closed",
                "-c:v mpeg2video -bf 2 -g 15 -flags +cgop -sc_threshold 1000000000"},
        CutFilm{"mpeg4", "-c:v mpeg4 -bf 2 -g 15"}),
    [](const auto& film) { return film.param.name; });

TEST(Prober, CountsNoPicturesBeforeTheFirstKeyFrameOfATransportStream) {
  const MediaMaker maker;
  const std::string pictures = moving_pictures(90) + "-threads 1 -pix_fmt yuv420p ";
  for (const auto& [name, options] : std::vector<std::pair<std::string, std::string>>{
           {"h264.ts", "-c:v libx264 -bf 2 -g 30 -sc_threshold 0"},
           {"mpeg2.ts", "-c:v mpeg2video -bf 2 -g 30"}}) {
    SCOPED_TRACE(name);
    const Bytes whole = maker.make(pictures + options, "whole_" + name);
    constexpr std::size_t kPacket = 188;
    const std::size_t begin = whole.size() / kPacket / 5 * kPacket;
    // What tells which streams there are stands at its begin.
    Bytes cut(whole.begin(), whole.begin() + 3 * kPacket);
    cut.insert(cut.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin), whole.end());
    maker.write(name, cut);
    const MediaFile file = probed(cut);
    ASSERT_EQ(file.streams.size(), 1U);
    EXPECT_THAT(file.faults, Contains("does not begin with a key frame"));
    EXPECT_GE(file.streams[0].frame_pts.size(), 30U);
    expect_frames_of_ffprobe(maker, name, file.streams[0]);
  }
}

TEST(Prober, RefusesMediaThatStandInAnotherFile) {
  const MediaMaker maker;
  for (const std::string name : {"a.mp4", "a.mov"}) {
    Bytes bytes = maker.make(moving_pictures(3) + "-c:v libx264 ", name);
    const std::size_t reference = place_of(bytes, "dref", 4 + 8);
    put_number(bytes, reference + 8, 0);  // not self-contained
    const Status status = probe_refusal(bytes);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("its media stand in another file"));
  }
}

TEST(Prober, OpensNoFileThatMediaName) {
  const MediaMaker maker;
  const Bytes good = maker.make(moving_pictures(3) + "-c:v libx264 ", "other.mp4");
  const std::string other = maker.path_of("other.mp4");
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(::inotify_add_watch(watch, other.c_str(), IN_OPEN | IN_ACCESS), 0);
  for (const std::string& text :
       {"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n" + other + "\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile " + other + "\n", "# mpv EDL v0\n" + other + ",0,1\n",
        "<?xml version='1.0'?><MPD><BaseURL>" + other + "</BaseURL></MPD>"}) {
    EXPECT_EQ(probe_refusal(bytes_of(text)).code(), Code::kInvalidArgument) << text;
  }
  // An entry that gives the path, as QuickTime has it, in the place of the one without.
  Bytes outside = good;
  const std::size_t reference = place_of(outside, "dref", 4 + 8);
  std::memcpy(outside.data() + reference + 4, "alis", 4);
  put_number(outside, reference + 8, 0);
  EXPECT_EQ(probe_refusal(outside).code(), Code::kInvalidArgument);

  std::array<char, 256> events{};
  EXPECT_LT(::read(watch, events.data(), events.size()), 0) << "the other file was opened";
  ::close(watch);
}

TEST(Prober, RefusesWhatHeadersPromiseBeforeTakingMemory) {
  const MediaMaker maker;
  const Bytes good = maker.make(moving_pictures(5) + "-c:v libx264 ", "a.mp4");

  Bytes hours = good;
  put_number(hours, place_of(hours, "mvhd", 4 + 16), 100U * 3600 * 1000);
  EXPECT_EQ(probe_refusal(hours).code(), Code::kResourceExhausted);
  EXPECT_THAT(probe_refusal(hours).message(),
              HasSubstr("claims 360000 seconds, over the limit of 86400"));

  Bytes huge = good;
  put_number(huge, place_of(huge, "stsd", 44), 0xFFF0FFF0);
  EXPECT_EQ(probe_refusal(huge).code(), Code::kResourceExhausted);
  EXPECT_THAT(probe_refusal(huge).message(), HasSubstr("65520x65520"));

  Bytes samples = good;
  put_number(samples, place_of(samples, "stsz", 4 + 4), 1);
  put_number(samples, place_of(samples, "stsz", 4 + 8), 0x7FFFFFFF);
  EXPECT_EQ(probe_refusal(samples).code(), Code::kResourceExhausted);
  EXPECT_THAT(probe_refusal(samples).message(), HasSubstr("claims 2147483647 samples"));

  EXPECT_TRUE(probe_refusal(good).ok());
  const Status packets =
      probe_refusal(maker.make(some_sound(2) + "-c:a libmp3lame ", "a.mp3"), {.max_packets = 10});
  EXPECT_EQ(packets.code(), Code::kResourceExhausted);
  EXPECT_THAT(packets.message(), HasSubstr("more packets than the limit of"));
  const Status seconds =
      probe_refusal(maker.make(some_sound(3) + "-c:a aac ", "a.aac"), {.max_seconds = 1});
  EXPECT_EQ(seconds.code(), Code::kResourceExhausted);
  EXPECT_THAT(seconds.message(), HasSubstr("claims 3 seconds, over the limit of 1"));
}

TEST(Prober, RefusesTimesThatCannotBeRight) {
  const MediaMaker maker;
  const Bytes good =
      maker.make(moving_pictures(5) + "-c:v libx264 -movflags frag_keyframe+empty_moov ", "a.mp4");
  EXPECT_TRUE(probe_refusal(good).ok());
  // The fragment's begin has 64 bits.
  Bytes late = good;
  put_number(late, place_of(late, "tfdt", 4 + 4), 0x3FFFFFFF);
  const Status status = probe_refusal(late);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("a packet of its stream 0 stands at a time that cannot"));
}

TEST(Prober, SaysWhichStreamsItCannotDecode) {
  const MediaMaker maker;
  const Status status = probe_refusal(
      maker.make(moving_pictures(5) + some_sound(0.2) + "-c:v wmv2 -c:a wmav2 ", "a.mkv"));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("its streams: video (wmv2), audio (wmav2)"));
  const MediaFile half =
      probed(maker.make(moving_pictures(5) + some_sound(0.2) + "-c:v wmv2 -c:a aac ", "b.mkv"));
  EXPECT_EQ(half.streams.size(), 1U);
  EXPECT_THAT(half.faults, Contains("a stream whose codec is not decoded (wmv2)"));
}

TEST(Prober, CountsSoundWithoutSamplesAsAFault) {
  const MediaMaker maker;
  Bytes bytes = maker.make(some_sound(0.1) + "-bitexact ", "a.wav");
  const std::size_t data = place_of(bytes, "data");
  bytes.resize(data + 8);
  put_number(bytes, data + 4, 0);
  const MediaFile file = probed(bytes);
  ASSERT_EQ(file.streams.size(), 1U);
  EXPECT_EQ(file.streams[0].info.samples, 0U);
  EXPECT_THAT(file.faults, Contains("sound without samples"));
}

// Its times are those that FFmpeg makes of them: "TS*0.5", say.
MediaFile with_sound_at(const std::string& times) {
  const MediaMaker maker;
  return probed(
      maker.make(some_sound(2, 48000) + "-c:a aac -bsf:a \"setts=ts='" + times + "'\"", "a.mkv"));
}

TEST(Prober, TellsWhereSoundHasGaps) {
  for (const std::string name : {"a.mp4", "a.mkv"}) {
    const MediaMaker maker;
    const MediaFile file = probed(
        maker.make(some_sound(4, 48000) + "-af \"aselect='not(between(t,1,2))'\" -c:a aac", name));
    const MediaStream& stream = file.streams.at(0);
    ASSERT_EQ(stream.gaps.size(), 1U) << name;
    const SoundGap& gap = stream.gaps[0];
    // Within a packet, and the delay of the encoder, which is told in two ways.
    EXPECT_NEAR(static_cast<double>(gap.before), 48'000, 2100) << name;
    EXPECT_NEAR(static_cast<double>(gap.before + gap.samples), 96'000, 2100) << name;
    EXPECT_FALSE(stream.info.is_off_clock);
    EXPECT_THAT(file.faults, Contains("sound with gaps, which windows of sound close"));
  }
}

TEST(Prober, TakesTimesThatAreLittleOffForNoGaps) {
  // At its end 20 ms.
  for (const std::string times : {"TS*1.01", "TS*0.99"}) {
    const MediaFile file = with_sound_at(times);
    EXPECT_THAT(file.streams.at(0).gaps, IsEmpty()) << times;
    EXPECT_FALSE(file.streams[0].info.is_off_clock) << times;
    EXPECT_THAT(file.faults, IsEmpty()) << times;
  }
}

TEST(Prober, TellsThatSoundGoesBack) {
  // Packets stand at times when those before them are still heard.
  for (const std::string times : {"TS*0.5", "TS*0.9"}) {
    const MediaFile file = with_sound_at(times);
    EXPECT_TRUE(file.streams.at(0).info.is_off_clock) << times;
    EXPECT_THAT(file.streams[0].gaps, IsEmpty()) << times;
    EXPECT_THAT(file.faults, Contains("sound whose times go back, or leap too often")) << times;
  }
}

TEST(Prober, SaysThatAFlacHasNoSamples) {
  const MediaMaker maker;
  EXPECT_EQ(probe_refusal(maker.make(some_sound(1) + "-t 0 -c:a flac ", "none.flac")).message(),
            "its sound has no samples: there is nothing to read");
}

TEST(Prober, CountsTheSamplesThatACutOffWavHas) {
  const MediaMaker maker;
  Bytes bytes = maker.make(some_sound(0.5), "a.wav");
  bytes.resize(bytes.size() - 1001);
  maker.write("cut.wav", bytes);
  const MediaFile file = probed(bytes);
  ASSERT_EQ(file.streams.size(), 1U);
  EXPECT_EQ(file.streams[0].info.samples, decoded_samples(maker, "cut.wav", file.streams[0]));
  EXPECT_THAT(file.faults, Contains("the file ends before its header says"));
}

TEST(Prober, TellsThatAFlacOrMp3EndsBeforeItsHeaderSays) {
  const MediaMaker maker;
  for (const std::string name : {"long.flac", "vbr.mp3", "cbr.mp3"}) {
    SCOPED_TRACE(name);
    const Bytes whole = maker.make(some_sound(5) + (name == "vbr.mp3" ? "-q:a 5 " : ""), name);
    EXPECT_THAT(probed(whole).faults, IsEmpty());
    for (const std::size_t tenths : {3U, 7U, 9U}) {
      const Bytes cut(whole.begin(),
                      whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * tenths / 10));
      EXPECT_THAT(probed(cut).faults, Contains("the file ends before its header says")) << tenths;
    }
  }
}

TEST(Prober, TellsThatAnMp3GoesOnBehindWhereItsHeaderSaysThatItEnds) {
  const MediaMaker maker;
  const Bytes whole = maker.make(some_sound(5) + "-q:a 5 ", "a.mp3");
  const Bytes lying = with_xing_frames(whole, 60);
  EXPECT_THAT(probed(lying).faults,
              Contains("the file goes on behind the end that its header says"));
  Bytes twice = whole;
  twice.insert(twice.end(), whole.begin(), whole.end());
  for (const Bytes& bytes : {lying, twice}) {
    maker.write("b.mp3", bytes);
    const MediaFile file = probed(bytes);
    EXPECT_EQ(file.streams[0].info.samples, decoded_samples(maker, "b.mp3", file.streams[0]));
  }
}

TEST(Prober, NeverPromisesMoreThanACutOffFileHas) {
  const MediaMaker maker;
  const std::string video = moving_pictures(30) + some_sound(1) + "-c:v libx264 -g 10 ";
  for (const auto& [arguments, name] : std::vector<std::pair<std::string, std::string>>{
           {video + "-c:a aac -movflags faststart ", "begin.mp4"},
           {video + "-c:a aac -movflags frag_keyframe+empty_moov ", "pieces.mp4"},
           {video + "-c:a aac ", "end.mp4"},
           {video + "-c:a libopus ", "a.mkv"},
           {video + "-c:a aac ", "a.ts"},
           {video + "-c:a libmp3lame ", "a.avi"},
           {some_sound(1) + "-c:a flac ", "a.flac"}}) {
    const Bytes whole = maker.make(arguments, name);
    const MediaFile complete = probed(whole);
    for (std::size_t i = 0; i < 60; ++i) {
      SCOPED_TRACE(name + " cut off, " + std::to_string(i));
      const Bytes cut(whole.begin(),
                      whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * i / 60));
      MemoryReader reader(cut);
      const Result<MediaFile> file = probe(reader);
      if (!file) {
        EXPECT_TRUE(file.error().code() == Code::kDataLoss ||
                    file.error().code() == Code::kInvalidArgument)
            << file.error().message();
        continue;
      }
      for (const MediaStream& stream : file->streams) {
        for (const MediaPacket& packet : stream.packets)
          EXPECT_LE(packet.offset + packet.size_bytes, cut.size());
        const auto same = std::find_if(
            complete.streams.begin(), complete.streams.end(),
            [&](const MediaStream& one) { return one.info.index == stream.info.index; });
        ASSERT_NE(same, complete.streams.end());
        EXPECT_LE(stream.frame_pts.size(), same->frame_pts.size());
        EXPECT_LE(stream.info.samples, same->info.samples + 4096);
      }
    }
  }
}

TEST(ProbeVersion, NamesTheLibrariesAndEveryLimit) {
  EXPECT_THAT(probe_version(), HasSubstr("avformat " + std::to_string(LIBAVFORMAT_VERSION_MAJOR)));
  EXPECT_EQ(probe_version(), probe_version());
  const std::set<std::string> versions = {
      probe_version(), probe_version({.max_streams = 1}), probe_version({.max_packets = 2}),
      probe_version({.max_pixels = 3}), probe_version({.max_seconds = 4})};
  EXPECT_EQ(versions.size(), 5u);
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

extern "C" {
#include <libavutil/intreadwrite.h>
#include <libavutil/mathematics.h>
#include <libavutil/samplefmt.h>
}

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "media/audio/audio_reader.h"
#include "media/audio/wav_file.h"
#include "media/container/demuxer.h"
#include "media/probe/prober.h"
#include "tests/unit/media/audio/sound_reference.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;
using Access = StreamInfo::Access;

// A file's stream of sound, and clips of it as a source would cut them.
struct Indexed {
  StreamInfo info;
  std::int64_t begin_pts = 0;
  std::vector<MediaPacket> packets;  // with offsets in `bytes`
  Bytes bytes;                       // of all packets

  // The packets from `preroll` before the one that holds sample `first`.
  MediaClip clip(std::uint64_t first, std::uint64_t samples, std::size_t preroll, Bytes& of) const {
    MediaClip clip;
    clip.stream = info;
    clip.first_sample = first;
    clip.samples = samples;
    clip.begin_pts = begin_pts;
    const auto number = [&](std::int64_t pts) {
      return static_cast<std::int64_t>(std::floor(
          static_cast<double>(pts - begin_pts) * info.time_base.value() * info.codec->sample_rate));
    };
    std::size_t begin = 0;
    std::size_t end = packets.size();
    for (std::size_t i = 0; i < packets.size(); ++i) {
      if (number(packets[i].pts) <= static_cast<std::int64_t>(first)) begin = i;
      if (number(packets[i].pts) <= static_cast<std::int64_t>(first + samples)) end = i + 1;
    }
    begin -= std::min(begin, preroll);
    end = std::min(end + 1, packets.size());
    of.clear();
    for (std::size_t i = begin; i < end; ++i) {
      MediaPacket packet = packets[i];
      const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(packet.offset);
      packet.offset = of.size();
      of.insert(of.end(), from, from + packet.size_bytes);
      clip.packets.push_back(packet);
    }
    return clip;
  }
};

Indexed index_of(const Bytes& file) {
  Indexed index;
  MemoryReader reader(file);
  Result<Demuxer> demuxer = Demuxer::open(reader);
  EXPECT_TRUE(demuxer) << demuxer.error().message();
  const AVStream& stream = demuxer->stream(0);
  const AVCodecParameters& from = *stream.codecpar;
  auto codec = std::make_shared<CodecParameters>();
  codec->codec = avcodec_get_name(from.codec_id);
  codec->tag = from.codec_tag;
  const auto* const extra = reinterpret_cast<const std::byte*>(from.extradata);
  codec->extradata.assign(extra, extra + from.extradata_size);
  codec->profile = from.profile;
  codec->bits_per_coded_sample = from.bits_per_coded_sample;
  codec->bits_per_raw_sample = from.bits_per_raw_sample;
  codec->sample_rate = from.sample_rate;
  codec->channels = from.ch_layout.nb_channels;
  if (from.format >= 0)
    codec->sample_format = av_get_sample_fmt_name(static_cast<AVSampleFormat>(from.format));
  codec->block_align = from.block_align;
  codec->frame_size = from.frame_size;
  codec->initial_padding = from.initial_padding;
  codec->seek_preroll = from.seek_preroll;
  index.info.kind = StreamInfo::Kind::kAudio;
  index.info.time_base = {stream.time_base.num, stream.time_base.den};
  demuxer->choose(0);
  const AvPtr<AVPacket> packet(av_packet_alloc());
  bool begun = false;
  while (*demuxer->read(*packet)) {
    MediaPacket made{.offset = index.bytes.size(),
                     .size_bytes = static_cast<std::uint32_t>(packet->size),
                     .key = true,
                     .discard = (packet->flags & AV_PKT_FLAG_DISCARD) != 0,
                     .pts = packet->pts,
                     .dts = packet->dts,
                     .duration = packet->duration};
    if (const auto* side =
            av_packet_get_side_data(packet.get(), AV_PKT_DATA_SKIP_SAMPLES, nullptr)) {
      made.skip_samples = AV_RL32(side);
      made.discard_samples = AV_RL32(side + 4);
    }
    if (!begun && !made.discard) {
      begun = true;
      // Matroska tells it of the stream, not of the packet.
      if (from.codec_id == AV_CODEC_ID_OPUS)
        made.skip_samples = static_cast<std::uint32_t>(from.initial_padding);
      index.begin_pts =
          made.pts + av_rescale_q(made.skip_samples, {1, codec->sample_rate}, stream.time_base);
    }
    const auto* const data = reinterpret_cast<const std::byte*>(packet->data);
    index.bytes.insert(index.bytes.end(), data, data + packet->size);
    index.packets.push_back(made);
  }
  index.info.codec = codec;
  return index;
}

struct Format {
  std::string make;
  std::string name;
  int channels = 1;
  std::size_t preroll = 0;
  float tolerance = 0;
};

class EveryClip : public ::testing::TestWithParam<Format> {};

TEST_P(EveryClip, IsASliceOfTheWholeSound) {
  const MediaMaker maker;
  const Bytes file = maker.make(some_sound(2.5, 48000) + "-bitexact -ac " +
                                    std::to_string(GetParam().channels) + " " + GetParam().make,
                                GetParam().name);
  const Sound whole = sound_of(file);
  Indexed index = index_of(file);
  index.info.samples = static_cast<std::uint64_t>(whole.length);
  AudioOptions options;
  AudioReader reader(options);
  Bytes part;
  for (const std::uint64_t first : {0, 1, 959, 30000, 65537, 118000}) {
    for (const std::uint64_t samples : {1, 480, 20000}) {
      const MediaClip clip = index.clip(first, samples, GetParam().preroll, part);
      Sound sound;
      const auto read = reader.read(part, &clip, sound, kSoundRoom);
      ASSERT_TRUE(read) << first << ": " << read.error().message();
      ASSERT_EQ(sound.length, static_cast<std::int64_t>(samples));
      ASSERT_EQ(sound.channels, GetParam().channels);
      float largest = 0;
      for (int c = 0; c < sound.channels; ++c) {
        for (std::size_t i = 0; i < samples; ++i) {
          const float expected =
              first + i < index.info.samples ? whole.channel(c)[first + i] : 0.0F;
          largest = std::max(largest, std::abs(sound.channel(c)[i] - expected));
        }
      }
      EXPECT_LE(largest, GetParam().tolerance) << first << " " << samples;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryClip,
                         ::testing::Values(Format{"-c:a flac", "a.flac", 2, 0},
                                           Format{"-c:a flac", "a.mkv", 1, 0},
                                           Format{"-c:a libmp3lame -b:a 64k", "a.mp3", 2, 12},
                                           Format{"-c:a aac -aac_pns 0", "a.m4a", 2, 2},
                                           Format{"-c:a alac", "alac.m4a", 2, 0},
                                           Format{"-c:a pcm_s24le", "a.mov", 2, 0},
                                           Format{"-c:a libopus", "a.webm", 2, 8, 5e-3F},
                                           Format{"-c:a libopus", "a.opus", 1, 8, 5e-3F}),
                         [](const auto& info) {
                           std::string name = info.param.name + "_" + std::to_string(info.index);
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// Of the packets that the prober tells, from some before the window on, in the file itself.
void expect_probed_slices(const Bytes& file, const Format& format,
                          const std::vector<std::uint64_t>& begins) {
  const Sound whole = sound_of(file);
  MemoryReader bytes(file);
  const Result<MediaFile> probed = probe(bytes);
  ASSERT_TRUE(probed) << probed.error().message();
  const MediaStream& stream = probed->streams.front();
  ASSERT_EQ(stream.info.samples, static_cast<std::uint64_t>(whole.length));
  MediaClip clip;
  clip.stream = stream.info;
  for (const MediaPacket& packet : stream.packets) {
    if (packet.discard) continue;
    clip.begin_pts = packet.pts + packet.skip_samples;
    break;
  }
  clip.samples = 3000;
  for (const std::uint64_t first : begins) {
    clip.first_sample = first;
    std::size_t begin = 0;
    while (begin + 1 < stream.packets.size() &&
           stream.packets[begin + 1].pts - clip.begin_pts <= static_cast<std::int64_t>(first))
      ++begin;
    begin -= std::min(begin, format.preroll);
    clip.packets.assign(stream.packets.begin() + static_cast<std::ptrdiff_t>(begin),
                        stream.packets.end());
    if (stream.info.access == Access::kPcm) clip.packets.clear();
    const std::span<const std::byte> part =
        std::span(file).subspan(stream.info.access == Access::kPcm ? stream.info.pcm_offset : 0);
    const Sound sound = sound_of(part, &clip);
    ASSERT_EQ(sound.length, 3000) << first;
    float largest = 0;
    for (int c = 0; c < sound.channels; ++c) {
      for (std::size_t i = 0; i < 3000; ++i) {
        const float expected = first + i < stream.info.samples ? whole.channel(c)[first + i] : 0.0F;
        largest = std::max(largest, std::abs(sound.channel(c)[i] - expected));
      }
    }
    EXPECT_LE(largest, format.tolerance) << first;
  }
}

class EveryProbedClip : public ::testing::TestWithParam<Format> {};

TEST_P(EveryProbedClip, IsASliceOfTheWholeSound) {
  const MediaMaker maker;
  const Bytes file = maker.make(some_sound(2.5, 48000) + "-bitexact -ac " +
                                    std::to_string(GetParam().channels) + " " + GetParam().make,
                                GetParam().name);
  expect_probed_slices(file, GetParam(), {0, 1000, 51234, 117500});
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryProbedClip,
                         ::testing::Values(Format{"-c:a flac", "a.flac", 2, 0},
                                           Format{"-c:a flac", "b.mkv", 1, 0},
                                           Format{"-c:a libmp3lame -b:a 64k", "a.mp3", 2, 12},
                                           Format{"-c:a aac -aac_pns 0", "a.m4a", 2, 2},
                                           Format{"-c:a aac -aac_pns 0 -f adts", "a.aac", 1, 2},
                                           Format{"-c:a alac", "b.m4a", 2, 0},
                                           Format{"-c:a pcm_s24le", "a.wav", 2, 0},
                                           Format{"-c:a pcm_s16be", "a.mov", 2, 0},
                                           Format{"-c:a libvorbis", "v.webm", 2, 3},
                                           Format{"-c:a libopus", "a.webm", 2, 8, 5e-3F},
                                           Format{"-c:a libopus", "a.opus", 1, 8, 5e-3F},
                                           Format{"-c:a libvorbis", "v.ogg", 1, 3}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// Whole sounds are those of FFmpeg, and windows are slices of them.
TEST(OddMp3, IsReadAsFfmpegReadsItWholeAndInWindows) {
  const MediaMaker maker;
  const Format format{"-c:a libmp3lame", "odd.mp3", 1, 12};
  const std::string mp3 = "-c:a libmp3lame -q:a 4 ";
  const Bytes one = maker.make(some_sound(1.5, 44100) + mp3, "a.mp3");
  const Bytes other = maker.make(some_sound(1.7, 44100) + mp3 + "-id3v2_version 3 ", "b.mp3");
  const Bytes bare = maker.make(some_sound(1.6, 44100) + mp3 + "-id3v2_version 0 ", "c.mp3");
  const Bytes id3v1 = bytes_of("TAG" + std::string(125, 'a'));
  const auto joined = [](const std::vector<Bytes>& files) {
    Bytes bytes;
    for (const Bytes& file : files) bytes.insert(bytes.end(), file.begin(), file.end());
    return bytes;
  };
  const std::vector<std::pair<std::string, Bytes>> files = {
      {"a header that counts too few frames", with_xing_frames(one, 20)},
      {"a header that counts too many", with_xing_frames(one, 2000)},
      {"a header that counts one frame", with_xing_frames(one, 1)},
      {"files with tags before them", joined({one, other, one})},
      {"files without tags", joined({bare, bare})},
      {"files with tags before and behind them", joined({one, id3v1, other, id3v1})},
      {"zeros before them", joined({Bytes(3000), one})},
  };
  for (const auto& [what, bytes] : files) {
    SCOPED_TRACE(what);
    maker.write("odd.mp3", bytes);
    EXPECT_EQ(sound_of(bytes).values, ffmpeg_samples(maker, "odd.mp3", 1));
    std::vector<std::uint64_t> begins;
    const auto length = static_cast<std::uint64_t>(sound_of(bytes).length);
    for (std::uint64_t begin = 0; begin < length; begin += 1700) begins.push_back(begin);
    expect_probed_slices(bytes, format, begins);
  }
}

// Clips of 16-bit samples 1, 2, 3 ... n, of which the bytes begin at `from`.
struct Counted {
  explicit Counted(std::uint64_t samples, std::uint64_t from = 0) {
    auto codec = std::make_shared<CodecParameters>();
    codec->codec = "pcm_s16le";
    codec->sample_rate = 8000;
    codec->channels = 1;
    codec->block_align = 2;
    clip.stream.kind = StreamInfo::Kind::kAudio;
    clip.stream.access = Access::kPcm;
    clip.stream.samples = samples;
    clip.stream.codec = codec;
    clip.bytes_first_sample = from;
    for (std::uint64_t i = from; i < samples; ++i) {
      bytes.push_back(static_cast<std::byte>((i + 1) & 0xFF));
      bytes.push_back(static_cast<std::byte>((i + 1) >> 8));
    }
  }

  std::vector<int> samples() {
    std::vector<int> numbers;
    for (const float value : sound_of(bytes, &clip).values)
      numbers.push_back(static_cast<int>(value * 32768));
    return numbers;
  }

  MediaClip clip;
  Bytes bytes;
};

Status refusal_of_clip(const Bytes& bytes, const MediaClip& clip,
                       const AudioOptions& options = {}) {
  AudioReader reader(options);
  Sound sound;
  const auto read = reader.read(bytes, &clip, sound, kSoundRoom);
  return read ? Status() : read.error();
}

TEST(PcmClip, IsReadFromWhereItsBytesBegin) {
  Counted counted(100, 40);
  counted.clip.first_sample = 42;
  counted.clip.samples = 3;
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(43, 44, 45));
}

TEST(PcmClip, EndsWithSilenceBeyondTheStream) {
  Counted counted(10);
  counted.clip.first_sample = 8;
  counted.clip.samples = 5;
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(9, 10, 0, 0, 0));
}

TEST(PcmClip, BeginsWithSilenceBeforeTheSound) {
  Counted counted(10);
  counted.clip.samples = 5;
  counted.clip.silence_before = 3;
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(0, 0, 0, 1, 2));
}

TEST(PcmClip, HasSilenceInItsGaps) {
  Counted counted(10);
  counted.clip.first_sample = 2;
  counted.clip.samples = 10;
  counted.clip.silence_before = 1;
  counted.clip.gaps = {{.before = 4, .samples = 3}, {.before = 6, .samples = 2}};
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(0, 3, 4, 0, 0, 0, 5, 6, 0, 0));
}

TEST(PcmClip, LoopsItsGapsLikewise) {
  Counted counted(10);
  counted.clip.first_sample = 8;
  counted.clip.samples = 7;
  counted.clip.gaps = {{.before = 9, .samples = 1}};
  counted.clip.loop = true;
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(9, 0, 10, 9, 0, 10, 9));
}

TEST(PcmClip, EndsBeforeAGapBehindTheStream) {
  Counted counted(10);
  counted.clip.first_sample = 8;
  counted.clip.samples = 6;
  counted.clip.gaps = {{.before = 12, .samples = 1}};
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(9, 10, 0, 0, 0, 0));
}

TEST(PcmClip, OfImpossibleGapsIsRefused) {
  using Gaps = std::vector<SoundGap>;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  Counted counted(10);
  counted.clip.first_sample = 4;
  counted.clip.samples = 5;
  for (const Gaps& gaps :
       {Gaps{{.before = 3, .samples = 1}}, Gaps{{.before = 5, .samples = 6}},
        Gaps{{.before = 5, .samples = -1}}, Gaps{{.before = 5, .samples = kMost}},
        Gaps{{.before = 6, .samples = 1}, {.before = 5, .samples = 1}},
        Gaps{{.before = 5, .samples = 3}, {.before = 6, .samples = 3}}}) {
    counted.clip.gaps = gaps;
    EXPECT_EQ(refusal_of_clip(counted.bytes, counted.clip).code(), Code::kDataLoss);
  }
  counted.clip.gaps = {{.before = kMost, .samples = 1}};
  EXPECT_EQ(refusal_of_clip(counted.bytes, counted.clip).code(), Code::kOk);
}

TEST(PcmClip, LoopsWhatThereIsOfIt) {
  Counted counted(10);
  counted.clip.first_sample = 7;
  counted.clip.samples = 8;
  counted.clip.loop = true;
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(8, 9, 10, 8, 9, 10, 8, 9));
}

TEST(PcmClip, BehindTheStreamIsSilence) {
  Counted counted(10);
  counted.clip.first_sample = 12;
  counted.clip.samples = 3;
  counted.clip.loop = true;
  EXPECT_THAT(counted.samples(), ::testing::ElementsAre(0, 0, 0));
}

TEST(PcmClip, ThatIsCutOffIsRefused) {
  Counted counted(10);
  counted.clip.samples = 10;
  counted.bytes.resize(19);
  const Status refused = refusal_of_clip(counted.bytes, counted.clip);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("it is cut off: of its samples 0 to 10 not all"));
}

TEST(PcmClip, OfImpossibleNumbersIsRefused) {
  Counted counted(10);
  counted.clip.samples = ~std::uint64_t{0};
  EXPECT_EQ(refusal_of_clip(counted.bytes, counted.clip).code(), Code::kDataLoss);
  counted.clip.samples = 1;
  counted.clip.silence_before = 2;
  EXPECT_EQ(refusal_of_clip(counted.bytes, counted.clip).code(), Code::kDataLoss);
  counted.clip.silence_before = 0;
  counted.clip.samples = 8000 * 601;
  EXPECT_EQ(refusal_of_clip(counted.bytes, counted.clip).code(), Code::kResourceExhausted);
}

TEST(PacketClip, WithoutItsPacketsIsRefused) {
  const MediaMaker maker;
  const Bytes file = maker.make(some_sound(1) + "-c:a flac", "a.flac");
  Indexed index = index_of(file);
  index.info.samples = 16000;
  Bytes part;
  MediaClip clip = index.clip(5000, 2000, 0, part);
  part.resize(part.size() / 2);
  Status refused = refusal_of_clip(part, clip);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("a packet of its sound is not there"));
  clip = index.clip(5000, 8000, 0, part);
  clip.packets.pop_back();
  clip.packets.pop_back();
  refused = refusal_of_clip(part, clip);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("it is damaged, or was changed since it was indexed"));
}

TEST(PacketClip, IsJudgedByItsOwnPackets) {
  const MediaMaker maker;
  const Bytes file = maker.make(some_sound(1) + "-c:a flac", "a.flac");
  Indexed index = index_of(file);
  index.info.samples = 16000;
  Bytes part;
  const MediaClip clip = index.clip(9300, 300, 1, part);
  ASSERT_GE(clip.packets.size(), 3U);
  const auto spoil = [&](std::size_t packet) {
    Bytes spoiled = part;
    for (std::size_t i = 20; i < 60; ++i) spoiled[clip.packets[packet].offset + i] ^= std::byte{85};
    return refusal_of_clip(spoiled, clip).code();
  };
  EXPECT_EQ(spoil(0), Code::kOk);
  EXPECT_EQ(spoil(1), Code::kDataLoss);
  EXPECT_EQ(spoil(2), Code::kOk);
}

TEST(PacketClip, KnowsItsChannelsAfterADamagedPacketBeforeIt) {
  const MediaMaker maker;
  const Bytes file = maker.make(some_sound(1) + "-c:a flac", "a.flac");
  Indexed index = index_of(file);
  index.info.samples = 16000;
  Bytes part;
  const MediaClip clip = index.clip(9300, 300, 2, part);
  ASSERT_GE(clip.packets.size(), 3U);
  const Sound whole = sound_of(part, &clip);
  for (std::size_t i = 20; i < 60; ++i) part[clip.packets[1].offset + i] ^= std::byte{85};
  EXPECT_EQ(sound_of(part, &clip).values, whole.values);
}

TEST(DemuxedClip, IsASliceOfTheWholeSound) {
  const MediaMaker maker;
  const Bytes file = maker.make(some_sound(2, 48000) + "-c:a libopus", "a.opus");
  const Sound whole = sound_of(file);
  MediaClip clip;
  clip.stream.access = Access::kDemux;
  clip.stream.samples = static_cast<std::uint64_t>(whole.length);
  auto codec = std::make_shared<CodecParameters>();
  codec->sample_rate = 48000;
  codec->channels = 1;
  clip.stream.codec = codec;
  clip.first_sample = 51234;
  clip.samples = 777;
  const Sound sound = sound_of(file, &clip);
  ASSERT_EQ(sound.length, 777);
  for (std::size_t i = 0; i < 777; ++i) ASSERT_EQ(sound.values[i], whole.values[51234 + i]) << i;
}

}  // namespace
}  // namespace spdld::media::test

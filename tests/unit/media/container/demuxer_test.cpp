// SPDX-License-Identifier: Apache-2.0
#include "media/container/demuxer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>
#include <string>
#include <vector>

#include "media/container/codecs.h"
#include "tests/unit/media/container/media_maker.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Status refusal(const Bytes& bytes, const MediaLimits& limits = {}) {
  MemoryReader reader(bytes);
  const Result<Demuxer> demuxer = Demuxer::open(reader, limits);
  return demuxer ? Status() : demuxer.error();
}

// Reads fail from an offset on.
class FailingReader final : public ByteReader {
 public:
  FailingReader(const Bytes& bytes, std::uint64_t from) : memory_(bytes), from_(from) {}

  std::uint64_t size() const override { return memory_.size(); }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset + out.size() > from_) return error(Code::kUnavailable, "the disk is away");
    return memory_.read(offset, out);
  }

 private:
  MemoryReader memory_;
  const std::uint64_t from_;
};

TEST(Demuxer, GivesThePacketsThatFfprobeGives) {
  const MediaMaker maker;
  const Bytes bytes =
      maker.make(moving_pictures(40) + some_sound(1.5) + "-c:v libx264 -c:a aac -bf 3", "a.mp4");
  MemoryReader reader(bytes);
  Result<Demuxer> demuxer = Demuxer::open(reader);
  ASSERT_TRUE(demuxer) << demuxer.error().message();
  EXPECT_EQ(demuxer->format(), "mov,mp4,m4a,3gp,3g2,mj2");
  ASSERT_EQ(demuxer->streams(), 2);
  demuxer->choose(0);
  const AvPtr<AVPacket> packet(av_packet_alloc());
  std::vector<std::vector<std::string>> seen;
  for (;;) {
    const Result<bool> more = demuxer->read(*packet);
    ASSERT_TRUE(more) << more.error().message();
    if (!*more) break;
    EXPECT_EQ(packet->stream_index, 0);
    seen.push_back({std::to_string(packet->pts), std::to_string(packet->dts),
                    std::to_string(packet->size), std::to_string(packet->pos)});
  }
  EXPECT_EQ(seen, maker.probe("a.mp4", "v:0", "packet", {"pts", "dts", "size", "pos"}));
  EXPECT_EQ(seen.size(), 40U);
}

TEST(Demuxer, GivesNoPacketsOfAStreamThatShowsUpLater) {
  const MediaMaker maker;
  // FFmpeg looks for streams in the first seconds and the last bytes alone.
  const std::string video = "-c:v mpeg2video -f mpegts ";
  Bytes bytes = maker.make(moving_pictures(250) + video, "a.ts");
  for (const Bytes& more :
       {maker.make(moving_pictures(25) + some_sound(1) + video + "-output_ts_offset 20", "b.ts"),
        maker.make(moving_pictures(100) + video + "-muxrate 4M -output_ts_offset 30", "c.ts")})
    bytes.insert(bytes.end(), more.begin(), more.end());
  MemoryReader reader(bytes);
  Result<Demuxer> demuxer = Demuxer::open(reader);
  ASSERT_TRUE(demuxer) << demuxer.error().message();
  ASSERT_EQ(demuxer->streams(), 1);
  demuxer->choose(0);
  const AvPtr<AVPacket> packet(av_packet_alloc());
  int packets = 0;
  for (;; ++packets) {
    const Result<bool> read = demuxer->read(*packet);
    ASSERT_TRUE(read) << read.error().message();
    if (!*read) break;
    EXPECT_EQ(packet->stream_index, 0);
  }
  EXPECT_EQ(packets, 375);
  EXPECT_EQ(demuxer->streams(), 2);
}

TEST(Demuxer, NamesWhatAFileIsThatItDoesNotRead) {
  EXPECT_EQ(refusal({}), Status(Code::kDataLoss, "the media file is empty"));
  const Status text = refusal(bytes_of("nothing that anybody could play\n"));
  EXPECT_EQ(text.code(), Code::kInvalidArgument);
  EXPECT_THAT(text.message(), HasSubstr("first bytes \"nothing that any\""));
  const MediaMaker maker;
  const Status gif = refusal(maker.make(moving_pictures(3), "a.gif"));
  EXPECT_EQ(gif.code(), Code::kInvalidArgument);
  EXPECT_THAT(gif.message(), HasSubstr("looks like the format \"gif\""));
}

TEST(Demuxer, RefusesAPlaylistWhateverItIsCalled) {
  for (const std::string text :
       {"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nother.ts\n",
        "ffconcat version 1.0\nfile a\n", "# mpv EDL v0\na.mkv,1,2\n", "[playlist]\nFile1=a.mp3\n",
        "<?xml version=\"1.0\"?><MPD/>", "\xEF\xBB\xBF\n#EXTM3U\na.mp3\n"}) {
    const Status status = refusal(bytes_of(text));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("which names other files")) << text;
  }
}

TEST(Demuxer, RefusesMoreStreamsThanItsLimit) {
  const MediaMaker maker;
  std::string maps;
  for (int i = 0; i < 20; ++i) maps += "-map 0 ";
  const Bytes bytes = maker.make(some_sound(0.2) + maps + "-c:a aac", "many.mp4");
  EXPECT_TRUE(refusal(bytes).ok());
  const Status status = refusal(bytes, {.max_streams = 19});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("more streams than the limit of 19"));
}

TEST(Demuxer, RefusesPicturesOverItsLimit) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(moving_pictures(2) + "-c:v libx264", "a.mp4");
  EXPECT_TRUE(refusal(bytes, {.max_pixels = 96 * 64}).ok());
  const Status status = refusal(bytes, {.max_pixels = 96 * 64 - 1});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("96x64 = 6144 pixels are over the limit of 6143"));
}

TEST(Demuxer, PassesOnWhyAReadFailed) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(moving_pictures(20) + "-c:v libx264", "a.mkv");
  for (const std::uint64_t from : {std::uint64_t{0}, std::uint64_t{100}}) {
    FailingReader reader(bytes, from);
    const Result<Demuxer> demuxer = Demuxer::open(reader);
    ASSERT_FALSE(demuxer);
    EXPECT_EQ(demuxer.error(), Status(Code::kUnavailable, "the disk is away"));
  }
}

TEST(Demuxer, StopsWhenItIsAskedTo) {
  const MediaMaker maker;
  const Bytes bytes = maker.make(moving_pictures(20) + "-c:v libx264", "a.mp4");
  MemoryReader reader(bytes);
  std::stop_source stop;
  stop.request_stop();
  const Result<Demuxer> demuxer = Demuxer::open(reader, {}, stop.get_token());
  ASSERT_FALSE(demuxer);
  EXPECT_EQ(demuxer.error().code(), Code::kCancelled);
}

TEST(Demuxer, SaysWhatIsWrongWithAFileThatIsCutOff) {
  const MediaMaker maker;
  Bytes bytes = maker.make(moving_pictures(20) + "-c:v libx264", "a.mp4");
  bytes.resize(bytes.size() / 2);  // the header stands at the end
  const Status status = refusal(bytes);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("moov atom not found"));
}

TEST(MediaCodecs, NameDecodersThatThisFfmpegHas) {
  int codecs = 0;
  const AVCodecDescriptor* known = nullptr;
  while ((known = avcodec_descriptor_next(known)) != nullptr) {
    const MediaCodec* const codec = find_media_codec(known->name);
    if (codec == nullptr) continue;
    ++codecs;
    EXPECT_STREQ(codec->name, known->name);
    EXPECT_EQ(known->type == AVMEDIA_TYPE_VIDEO, codec->kind == StreamInfo::Kind::kVideo);
    const AVCodec* found = avcodec_find_decoder_by_name(codec->decoder);
    ASSERT_NE(found, nullptr) << codec->decoder;
    EXPECT_EQ(found->id, known->id) << codec->decoder;
    EXPECT_EQ(found->capabilities & (AV_CODEC_CAP_EXPERIMENTAL | AV_CODEC_CAP_HARDWARE), 0);
  }
  EXPECT_EQ(codecs, 32) << "of those in codecs.cpp, each is one that FFmpeg knows by its name";
  EXPECT_EQ(find_media_codec("rawvideo"), nullptr);
}

}  // namespace
}  // namespace spdld::media::test

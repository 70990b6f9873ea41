// SPDX-License-Identifier: Apache-2.0
#include "media/video/video_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/video/clip_maker.h"

namespace spdld::media::test {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr const char* kScale =
    "scale=sws_flags=bilinear+accurate_rnd+full_chroma_int+full_chroma_inp";

struct Film {
  std::string name;  // of the test
  std::string file;
  std::string options;  // that encode it
  std::string chroma;   // where the reference is told that chroma lies
  std::string pictures = "size=96x64:rate=25";
};

std::string left() { return ":in_h_chr_pos=0:in_v_chr_pos=128"; }

std::vector<Film> films() {
  const std::string h264 = "-c:v libx264 -threads 1 -g 12 ";
  return {
      {"H264WithBFrames", "a.mp4", h264 + "-pix_fmt yuv420p -bf 3", left()},
      {"H264OfOpenGroups", "a.mp4",
       h264 + "-pix_fmt yuv420p -bf 3 -x264-params open-gop=1:b-pyramid=normal", left()},
      {"H264OfGradualRefresh", "a.mp4",
       "-c:v libx264 -threads 1 -pix_fmt yuv420p -x264-params intra-refresh=1:keyint=10", left()},
      {"H264OfGradualRefreshWithBFrames", "a.mkv",
       "-c:v libx264 -threads 1 -pix_fmt yuv420p -bf 2 -x264-params intra-refresh=1:keyint=9",
       left(), "size=160x96:rate=25"},
      {"H264OfKeyFramesThatAreNone", "a.mp4",
       h264 + "-pix_fmt yuv420p -bf 2 -x264-params open-gop=1 -bsf:v filter_units=remove_types=6",
       left()},
      {"H264OfBt709", "a.mkv",
       h264 + "-vf scale=out_color_matrix=bt709 -pix_fmt yuv420p -colorspace bt709", left()},
      {"H264OfFullRange", "a.mp4",
       h264 + "-vf scale=out_range=full -pix_fmt yuvj420p -color_range pc", left()},
      {"H264Of10Bits", "a.mp4", h264 + "-pix_fmt yuv420p10le", left()},
      {"H264Of422", "a.mp4", h264 + "-pix_fmt yuv422p", ":in_h_chr_pos=0"},
      {"H264Of444", "a.mp4", h264 + "-pix_fmt yuv444p", ""},
      {"H264OfRgb", "a.mp4", "-c:v libx264rgb -threads 1 -g 12 -pix_fmt rgb24", ""},
      {"H264OfOddSize", "a.mkv", h264 + "-pix_fmt yuv444p", "", "size=97x63:rate=25"},
      {"HevcOf10Bits", "a.mp4",
       "-c:v libx265 -g 10 -pix_fmt yuv420p10le -x265-params log-level=none:pools=1:keyint=10",
       left()},
      {"HevcOfTemporalLayers", "a.mkv",
       "-c:v libx265 -pix_fmt yuv420p -x265-params "
       "log-level=none:pools=1:keyint=20:bframes=4:temporal-layers=1",
       left()},
      {"Vp9", "a.webm", "-c:v libvpx-vp9 -g 10 -deadline realtime -cpu-used 8 -pix_fmt yuv420p", "",
       "size=98x66:rate=25"},
      {"Vp9OfOddSize", "a.webm",
       "-c:v libvpx-vp9 -g 10 -deadline realtime -cpu-used 8 -pix_fmt yuv420p", "",
       "size=97x65:rate=25"},
      {"Av1", "a.mkv", "-c:v libsvtav1 -preset 12 -g 10 -svtav1-params lp=1 -pix_fmt yuv420p", "",
       "size=96x64:rate=25"},
      {"Vp8", "a.webm", "-c:v libvpx -g 10 -deadline realtime -cpu-used 8 -pix_fmt yuv420p", ""},
      {"Mpeg4WithBFrames", "a.mp4", "-c:v mpeg4 -q:v 3 -bf 2 -g 10", left()},
      {"Mpeg2", "a.mkv", "-c:v mpeg2video -q:v 3 -bf 2 -g 10", left()},
      {"Mjpeg", "a.mkv", "-c:v mjpeg -q:v 3 -pix_fmt yuvj420p",
       ":in_h_chr_pos=128:in_v_chr_pos=128"},
      {"Ffv1OfGray", "a.mkv", "-c:v ffv1 -pix_fmt gray", ""},
      {"Ffv1Of16Bits", "a.mkv", "-c:v ffv1 -pix_fmt yuv444p16le", ""},
      {"Ffv1Of411", "a.mkv", "-c:v ffv1 -pix_fmt yuv411p", ""},
      {"Ffv1OfOddSize", "a.mkv", "-c:v ffv1 -pix_fmt yuv420p", "", "size=61x35:rate=25"},
      {"ProRes", "a.mov", "-c:v prores_ks -pix_fmt yuv422p10le", ""},
      {"VariableRate", "a.mkv", h264 + "-pix_fmt yuv420p -vsync vfr -vf select='mod(n\\,3)'",
       left()},
  };
}

class FilmTest : public testing::TestWithParam<Film> {
 protected:
  static constexpr int kFrames = 40;

  FilmTest()
      : file_(maker_.make(moving_pictures(kFrames, film().pictures) + film().options, film().file)),
        clips_(file_) {}

  static const Film& film() { return GetParam(); }

  // FFmpeg's pixels of each frame, one behind the other.
  Bytes reference(const std::string& more = "") const {
    return maker_.make("-noautorotate -i " + film().file + " -vsync passthrough -vf \"" + kScale +
                           film().chroma + ",format=rgb24" + more + "\" -f rawvideo",
                       "reference.rgb");
  }

  Frames frames(const ClipMaker::Cut& cut) {
    Result<Frames> frames = frames_of(decoder_, cut.clip, cut.bytes);
    EXPECT_TRUE(frames) << frames.error().message();
    return frames ? *std::move(frames) : Frames{};
  }

  MediaMaker maker_;
  Bytes file_;
  ClipMaker clips_;
  ClipDecoder decoder_{3, {}};
};

TEST_P(FilmTest, GivesFFmpegsFramesWithinOneLevel) {
  const Frames all = frames(clips_.whole());
  EXPECT_GE(all.pixels.size(), 20U);
  expect_near(all, reference());
}

TEST_P(FilmTest, GivesTheSameFramesByRandomAccess) {
  const Frames all = frames(clips_.whole());
  KeyedRng rng(5);
  for (int i = 0; i < 12; ++i) {
    std::vector<std::int64_t> times;
    std::vector<std::size_t> numbers;
    std::size_t at = rng.below(all.times.size());
    const std::size_t stride = 1 + rng.below(15);
    for (int n = 0; n < 4 && at < all.times.size(); ++n, at += stride) numbers.push_back(at);
    if (i % 3 == 0) std::reverse(numbers.begin(), numbers.end());
    if (i % 4 == 0) numbers.push_back(numbers.front());
    for (const std::size_t number : numbers) times.push_back(all.times[number]);
    const Frames some = frames(clips_.cut(times));
    ASSERT_EQ(some.pixels.size(), numbers.size());
    for (std::size_t n = 0; n < numbers.size(); ++n)
      EXPECT_EQ(some.pixels[n], all.pixels[numbers[n]]) << "frame " << numbers[n];
  }
}

INSTANTIATE_TEST_SUITE_P(ClipDecoder, FilmTest, testing::ValuesIn(films()),
                         [](const auto& film) { return film.param.name; });

class ClipDecoderTest : public testing::Test {
 protected:
  Bytes film(int frames = 30, const std::string& more = "-bf 2") const {
    return maker_.make(
        moving_pictures(frames) + "-c:v libx264 -threads 1 -g 10 -pix_fmt yuv420p " + more,
        "a.mp4");
  }
  static std::vector<std::int64_t> some(const ClipMaker& clips, std::size_t from,
                                        std::size_t count) {
    const auto begin = clips.times().begin() + static_cast<std::ptrdiff_t>(from);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }
  Status error_of(const ClipMaker::Cut& cut) {
    const Result<Frames> frames = frames_of(decoder_, cut.clip, cut.bytes);
    return frames ? Status() : frames.error();
  }
  void expect_whole(const ClipMaker::Cut& cut, const Frames& expected) {
    const Result<Frames> frames = frames_of(decoder_, cut.clip, cut.bytes);
    ASSERT_TRUE(frames) << frames.error().message();
    EXPECT_EQ(frames->pixels, expected.pixels);
  }

  MediaMaker maker_;
  ClipDecoder decoder_{3, {}};
};

TEST_F(ClipDecoderTest, TakesGradualRefreshOutOfATransportStream) {
  const Bytes file = maker_.make(moving_pictures(60) +
                                     "-c:v libx264 -threads 1 -pix_fmt yuv420p -x264-params "
                                     "intra-refresh=1:keyint=10",
                                 "a.ts");
  const ClipMaker clips(file);
  const ClipMaker::Cut all = clips.demuxed(clips.times());
  const Result<Frames> whole = frames_of(decoder_, all.clip, all.bytes);
  ASSERT_TRUE(whole) << whole.error().message();
  ASSERT_EQ(whole->pixels.size(), 60U);
  expect_near(*whole, maker_.make(std::string("-i a.ts -vsync passthrough -vf \"") + kScale +
                                      left() + ",format=rgb24\" -f rawvideo",
                                  "reference.rgb"));
  for (const std::size_t at : {0, 7, 9, 10, 11, 35, 59}) {
    const ClipMaker::Cut cut = clips.demuxed(some(clips, at, 1));
    const Result<Frames> frames = frames_of(decoder_, cut.clip, cut.bytes);
    ASSERT_TRUE(frames) << at << ": " << frames.error().message();
    EXPECT_EQ(frames->pixels[0], whole->pixels[at]) << at;
  }
}

TEST_F(ClipDecoderTest, ReadsRegionsAsPartsOfTheWhole) {
  const Bytes file = film(3);
  ClipMaker clips(file);
  const ClipMaker::Cut cut = clips.whole();
  const Frames whole = *frames_of(decoder_, cut.clip, cut.bytes);
  for (const Rect region : {Rect{0, 0, 1, 1}, {1, 1, 5, 3}, {95, 63, 1, 1}, {17, 20, 40, 31}}) {
    const Frames part = *frames_of(decoder_, cut.clip, cut.bytes, 3, region);
    for (std::size_t i = 0; i < whole.pixels.size(); ++i) {
      std::vector<std::uint8_t> expected;
      for (int y = region.y; y < region.y + region.height; ++y) {
        const auto row = whole.pixels[i].begin() + (y * 96 + region.x) * 3;
        expected.insert(expected.end(), row, row + region.width * 3);
      }
      EXPECT_EQ(part.pixels[i], expected);
    }
  }
}

TEST_F(ClipDecoderTest, TurnsFramesUpright) {
  const Bytes file = film(2);
  struct Turned {
    int rotation;
    bool mirrored;
    std::string filter;
  };
  for (const Turned& turned : {Turned{90, false, "transpose=clock"},
                               {180, false, "hflip,vflip"},
                               {270, false, "transpose=cclock"},
                               {0, true, "hflip"},
                               {90, true, "hflip,transpose=clock"}}) {
    ClipMaker clips(file);
    clips.stream().rotation = turned.rotation;
    clips.stream().mirrored = turned.mirrored;
    const ClipMaker::Cut cut = clips.whole();
    const Frames frames = *frames_of(decoder_, cut.clip, cut.bytes);
    const Bytes expected =
        maker_.make("-i a.mp4 -vsync passthrough -vf \"" + std::string(kScale) + left() +
                        ",format=rgb24," + turned.filter + "\" -f rawvideo",
                    "turned.rgb");
    SCOPED_TRACE(turned.filter);
    expect_near(frames, expected);
  }
}

TEST_F(ClipDecoderTest, GivesGrayWithinOneLevelOfFFmpegs) {
  const Bytes file = film(2);
  ClipMaker clips(file);
  const ClipMaker::Cut cut = clips.whole();
  ClipDecoder decoder(1, {});
  const Frames frames = *frames_of(decoder, cut.clip, cut.bytes, 1);
  const Bytes expected =
      maker_.make("-i a.mp4 -vf \"" + std::string(kScale) + ",format=gray\" -f rawvideo", "a.gray");
  expect_near(frames, expected);
}

TEST_F(ClipDecoderTest, TakesPacketsOutOfATransportStream) {
  const Bytes file = maker_.make(
      moving_pictures(30) + "-c:v libx264 -threads 1 -g 10 -bf 2 -pix_fmt yuv420p", "a.ts");
  ClipMaker clips(file);
  const ClipMaker::Cut all = clips.demuxed(clips.times());
  const Frames whole = *frames_of(decoder_, all.clip, all.bytes);
  ASSERT_EQ(whole.pixels.size(), 30U);
  const ClipMaker::Cut cut = clips.demuxed(some(clips, 17, 3));
  const Frames part = *frames_of(decoder_, cut.clip, cut.bytes);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(part.pixels[i], whole.pixels[17 + i]);
}

TEST_F(ClipDecoderTest, FailsOnADamagedPacketAndGoesOn) {
  for (const std::string codec : {"libx264 -threads 1 -pix_fmt yuv420p", "mpeg4 -q:v 3",
                                  "mjpeg -q:v 3", "ffv1 -slicecrc 1"}) {
    const Bytes file = maker_.make(moving_pictures(20) + "-g 10 -c:v " + codec, "damaged.mkv");
    ClipMaker clips(file);
    const ClipMaker::Cut good = clips.whole();
    const Frames whole = *frames_of(decoder_, good.clip, good.bytes);
    ClipMaker::Cut bad = clips.whole();
    const MediaPacket& hit = bad.clip.packets[3];
    for (std::size_t i = hit.size_bytes / 4; i < hit.size_bytes; ++i)
      bad.bytes[hit.offset + i] = std::byte{0xA7};
    const Status damaged = error_of(bad);
    EXPECT_EQ(damaged.code(), Code::kDataLoss) << codec;
    expect_whole(good, whole);
    // Cut off in the middle.
    ClipMaker::Cut cut = clips.whole();
    cut.clip.packets[3].size_bytes /= 3;
    EXPECT_EQ(error_of(cut).code(), Code::kDataLoss) << codec;
    expect_whole(good, whole);
  }
}

TEST_F(ClipDecoderTest, ForgetsAClipThatWasNotReadToItsEnd) {
  const Bytes file = film();
  const Bytes other = film(30, "-bf 2 -vf negate");
  ClipMaker clips(file);
  ClipMaker others(other);
  const ClipMaker::Cut first = clips.whole();
  const ClipMaker::Cut second = others.whole();
  ClipDecoder fresh(3, {});
  const Frames expected = *frames_of(fresh, second.clip, second.bytes);
  ASSERT_TRUE(decoder_.open(first.clip, first.bytes));
  ASSERT_TRUE(*decoder_.next());
  expect_whole(second, expected);
}

// Of its other bytes, none tells FFmpeg that it is damaged.
TEST_F(ClipDecoderTest, FailsOnADamagedHeaderOfVp9) {
  const Bytes file = maker_.make(
      moving_pictures(20) + "-g 10 -c:v libvpx-vp9 -deadline realtime -cpu-used 8", "damaged.webm");
  ClipMaker clips(file);
  ClipMaker::Cut bad = clips.whole();
  bad.bytes[bad.clip.packets[3].offset] = std::byte{0};
  const Status damaged = error_of(bad);
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("corrupt vp9 video at"));
}

TEST_F(ClipDecoderTest, FailsWhereAFrameHasNoPacket) {
  const Bytes file = film();
  ClipMaker clips(file);
  ClipMaker::Cut cut = clips.cut(some(clips, 5, 3));
  cut.clip.frames.push_back(123456789);
  const Status status = error_of(cut);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("no packet for 1 of its frames"));
}

TEST_F(ClipDecoderTest, FailsWhereTheKeyFrameIsMissing) {
  const Bytes file = film(30, "-bf 0");
  ClipMaker clips(file);
  ClipMaker::Cut cut = clips.cut(some(clips, 5, 3));
  cut.clip.packets.erase(cut.clip.packets.begin());
  EXPECT_EQ(error_of(cut).code(), Code::kDataLoss);
}

// FFmpeg's decoder of HEVC puts gray in place of a picture that it does not have, and goes on.
TEST_F(ClipDecoderTest, FailsWhereAnHevcReferenceIsMissing) {
  const Bytes file = maker_.make(
      moving_pictures(20) + "-c:v libx265 -x265-params log-level=error:keyint=20:bframes=0:ref=1",
      "hole.mkv");
  ClipMaker clips(file);
  const ClipMaker::Cut good = clips.whole();
  const Frames whole = *frames_of(decoder_, good.clip, good.bytes);
  ClipMaker::Cut hole = clips.whole();
  const auto missing = hole.clip.packets.begin() + 5;
  std::erase(hole.clip.frames, missing->pts);
  hole.clip.packets.erase(missing);
  const Status damaged = error_of(hole);
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("FFmpeg says: Could not find ref with POC"));
  expect_whole(good, whole);
}

// FFmpeg's decoder of H.264 repeats the picture before one that it does not have, and goes on.
TEST_F(ClipDecoderTest, FailsWhereAnH264ReferenceIsMissing) {
  const Bytes file = film(20, "-bf 0 -refs 1 -g 20");
  ClipMaker clips(file);
  const ClipMaker::Cut good = clips.whole();
  const Frames whole = *frames_of(decoder_, good.clip, good.bytes);
  ClipMaker::Cut hole = clips.whole();
  const auto missing = hole.clip.packets.begin() + 5;
  std::erase(hole.clip.frames, missing->pts);
  hole.clip.packets.erase(missing);
  const Status damaged = error_of(hole);
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("FFmpeg says: Frame num gap"));
  expect_whole(good, whole);
}

// Of each picture FFmpeg decodes the components that are there.
TEST_F(ClipDecoderTest, FailsWhereAComponentOfMotionJpegIsMissing) {
  const Bytes file =
      maker_.make(moving_pictures(6) + "-c:v mjpeg -q:v 3 -pix_fmt yuvj444p", "a.avi");
  ClipMaker clips(file);
  const ClipMaker::Cut good = clips.whole();
  const Frames whole = *frames_of(decoder_, good.clip, good.bytes);
  Bytes one = make_jpeg({.width = 96, .height = 64, .interleaved = false});
  const auto put = [&](ClipMaker::Cut cut, const Bytes& picture) {
    cut.clip.packets[3].offset = cut.bytes.size();
    cut.clip.packets[3].size_bytes = static_cast<std::uint32_t>(picture.size());
    cut.bytes.insert(cut.bytes.end(), picture.begin(), picture.end());
    return cut;
  };
  EXPECT_TRUE(error_of(put(good, one)).ok());
  constexpr std::array<std::byte, 2> kScan{std::byte{0xFF}, std::byte{0xDA}};
  const auto first = std::search(one.begin(), one.end(), kScan.begin(), kScan.end());
  one.erase(std::search(first + 1, one.end(), kScan.begin(), kScan.end()), one.end() - 2);
  const Status damaged = error_of(put(good, one));
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("a component of its picture has no scan"));
  expect_whole(good, whole);
}

TEST_F(ClipDecoderTest, FailsOnPacketsBeyondTheBytes) {
  const Bytes file = film();
  ClipMaker clips(file);
  ClipMaker::Cut cut = clips.cut(some(clips, 5, 3));
  cut.clip.packets.back().size_bytes += 1;
  const Status status = error_of(cut);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("beyond the bytes that were read"));
}

TEST_F(ClipDecoderTest, DecodesNoPictureThatNothingNeeds) {
  const Bytes file = film(30, "-bf 3 -b_strategy 0 -x264-params b-pyramid=none:keyint=100");
  ClipMaker clips(file);
  const ClipMaker::Cut cut = clips.cut({clips.times()[28]});
  // Of four pictures, three are needed by no other.
  ClipDecoder decoder(3, {.max_frames = 11});
  EXPECT_TRUE(frames_of(decoder, cut.clip, cut.bytes));
  EXPECT_GE(cut.clip.packets.size(), 25U);
}

TEST_F(ClipDecoderTest, RefusesPicturesOverTheLimit) {
  const Bytes file = film(3);
  ClipMaker clips(file);
  const ClipMaker::Cut cut = clips.whole();
  ClipDecoder decoder(3, {.max_pixels = 96 * 64 - 1});
  const Result<Size> size = decoder.open(cut.clip, cut.bytes);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error(), Status(Code::kResourceExhausted,
                                 "video of 96x64 = 6144 pixels is over the limit of 6143; raise "
                                 "decode_video.max_pixels to read it"));
}

TEST_F(ClipDecoderTest, RefusesClipsThatNeedTooManyFrames) {
  const Bytes file = film();
  ClipMaker clips(file);
  const ClipMaker::Cut cut = clips.cut({clips.times()[9]});
  ClipDecoder decoder(3, {.max_frames = 3});
  const Result<Size> size = decoder.open(cut.clip, cut.bytes);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(size.error().message(), HasSubstr("raise decode_video.max_frames"));
}

TEST_F(ClipDecoderTest, RefusesAStreamWhosePicturesAreLarger) {
  const Bytes small = film(10, "-bf 0");
  ClipMaker clips(small);
  const Bytes large = maker_.make(moving_pictures(10, "size=640x480:rate=25") +
                                      "-c:v libx264 -threads 1 -pix_fmt yuv420p -bf 0",
                                  "large.mp4");
  ClipMaker others(large);
  ClipMaker::Cut cut = others.whole();
  auto lying = std::make_shared<CodecParameters>(*cut.clip.stream.codec);
  lying->width = 96;
  lying->height = 64;
  cut.clip.stream.codec = lying;
  const Status status = error_of(cut);
  EXPECT_EQ(status.code(), Code::kDataLoss) << status.message();
  const ClipMaker::Cut good = clips.whole();
  EXPECT_TRUE(frames_of(decoder_, good.clip, good.bytes));
}

TEST_F(ClipDecoderTest, RefusesACodecThatIsNotRead) {
  const Bytes file = film(3);
  ClipMaker clips(file);
  ClipMaker::Cut cut = clips.whole();
  auto other = std::make_shared<CodecParameters>(*cut.clip.stream.codec);
  other->codec = "rawvideo";
  cut.clip.stream.codec = other;
  const Status status = error_of(cut);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'rawvideo' is not read"));
}

}  // namespace
}  // namespace spdld::media::test

// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/media_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace spdld::source {
namespace {

using ::testing::HasSubstr;

std::vector<MediaPacket> packets_of(const PacketTable& table) {
  std::vector<MediaPacket> packets;
  PacketTable::Block first;
  if (!table.next(first)) return packets;
  PacketReader reader(table, first);
  for (MediaPacket packet; reader.next(packet);) packets.push_back(packet);
  return packets;
}

// Frames and packets as a file of this seed might have them.
struct Some {
  explicit Some(unsigned seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint64_t bound) { return random() % bound; };
    std::uint64_t offset = below(100'000);
    std::int64_t dts = static_cast<std::int64_t>(below(2000)) - 1000;
    const bool gaps = below(2) == 0;
    const bool timeless = below(4) == 0;
    for (std::uint64_t n = below(2000) + 1; n > 0; --n) {
      MediaPacket packet{.offset = offset,
                         .size_bytes = static_cast<std::uint32_t>(below(100'000)),
                         .key = packets.empty() || below(30) == 0,
                         .discard = below(100) == 0,
                         .pts = dts + static_cast<std::int64_t>(below(5)),
                         .dts = timeless && below(3) == 0 ? kNoTime : dts,
                         .duration = static_cast<std::int64_t>(below(3)),
                         .skip_samples = below(50) == 0 ? 312U : 0U,
                         .discard_samples = below(50) == 0 ? 7U : 0U};
      if (timeless && below(10) == 0) packet.pts = kNoTime;
      offset += packet.size_bytes + (gaps ? below(500) : 0);
      if (gaps && below(100) == 0) offset = below(1'000'000);  // out of order
      dts += static_cast<std::int64_t>(below(4));
      packets.push_back(packet);
      if (packet.pts != kNoTime) frames.push_back(packet.pts);
    }
    std::sort(frames.begin(), frames.end());
  }
  std::vector<MediaPacket> packets;
  std::vector<std::int64_t> frames;
};

TEST(PacketTable, GivesBackEveryPacket) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Some some(seed);
    const auto text = packet_table_text(some.packets);
    ASSERT_TRUE(text) << text.error().message();
    EXPECT_EQ(packets_of(PacketTable(*text)), some.packets) << seed;
  }
}

TEST(PacketTable, IsReadFromAnyBlockOn) {
  Some some(0);
  for (unsigned seed = 1; some.packets.size() < 1500; ++seed) some = Some(seed);
  const std::string text = packet_table_text(some.packets).value();
  const PacketTable table(text);
  PacketTable::Block block;
  int blocks = 0;
  while (table.next(block)) {
    ++blocks;
    PacketReader reader(table, block);
    MediaPacket packet;
    ASSERT_TRUE(reader.next(packet));
    EXPECT_EQ(reader.number(), block.first);
    EXPECT_TRUE(packet.key);
    EXPECT_EQ(packet, some.packets[block.first]);
  }
  EXPECT_GT(blocks, 1);
}

TEST(PacketTable, TakesFewBytesForAVideoAndItsSound) {
  std::vector<MediaPacket> video;
  for (int i = 0; i < 18'000; ++i)  // ten minutes
    video.push_back({.offset = 1000 + static_cast<std::uint64_t>(i) * 3000,
                     .size_bytes = 2000 + static_cast<std::uint32_t>(i * 37 % 900),
                     .key = i % 250 == 0,
                     .pts = i * 512,
                     .dts = i * 512 - 1024,
                     .duration = 512});
  EXPECT_LT(packet_table_text(video).value().size(), video.size() * 6);
}

TEST(PacketTable, EndsWhereItIsDamaged) {
  const Some some(5);
  const std::string text = packet_table_text(some.packets).value();
  for (std::size_t size = 0; size < text.size(); size += 7)
    EXPECT_LT(packets_of(PacketTable(std::string_view(text).substr(0, size))).size(),
              some.packets.size());
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string other = text;
    other[random() % other.size()] = static_cast<char>(random());
    EXPECT_LT(packets_of(PacketTable(other)).size(), 1'000'000u);
  }
}

TEST(PacketTable, RefusesTimesThatCannotBe) {
  EXPECT_FALSE(packet_table_text(std::vector<MediaPacket>{{.pts = kMostTime + 1}}));
  EXPECT_FALSE(packet_table_text(std::vector<MediaPacket>{{.pts = 0, .dts = -kMostTime - 1}}));
  EXPECT_FALSE(packet_table_text(std::vector<MediaPacket>{{.pts = 0, .duration = -1}}));
}

TEST(FrameTable, TakesFramesFromAnyOnWithAnyStride) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Some some(seed);
    const std::string text = frame_table_text(some.frames);
    const FrameTable table(text);
    ASSERT_EQ(table.size(), some.frames.size());
    for (std::uint64_t first = 0; first < some.frames.size() + 2; first += 13) {
      for (const std::uint64_t stride : {1, 2, 7}) {
        std::vector<std::int64_t> expected;
        for (std::uint64_t i = first; i < some.frames.size() && expected.size() < 16; i += stride)
          expected.push_back(some.frames[i]);
        std::vector<std::int64_t> taken;
        table.take(first, stride, 16, taken);
        EXPECT_EQ(taken, expected);
      }
    }
  }
}

TEST(FrameTable, FindsTheFramesOnBothSidesOfATime) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    Some some(seed);
    std::vector<std::int64_t>& frames = some.frames;
    frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
    const std::string text = frame_table_text(frames);
    const FrameTable table(text);
    for (std::int64_t time = frames.front() - 3; time < frames.back() + 3; ++time) {
      const auto behind = std::upper_bound(frames.begin(), frames.end(), time);
      const auto at = behind == frames.begin() ? behind : behind - 1;
      const FrameTable::Neighbours found = table.around(time);
      ASSERT_EQ(found.frame, static_cast<std::uint64_t>(at - frames.begin()));
      ASSERT_EQ(found.time, *at);
      ASSERT_EQ(found.next, at + 1 == frames.end() ? *at : *(at + 1));
    }
  }
}

TEST(FrameTable, TakesTenBytesWhereFramesAreEvenlySpaced) {
  std::vector<std::int64_t> frames;
  for (int i = 0; i < 100'000; ++i) frames.push_back(i * 1001);
  EXPECT_LE(frame_table_text(frames).size(), 10u);
  EXPECT_TRUE(FrameTable(frame_table_text(frames)).is_even());
  frames.back() += 3000;
  EXPECT_FALSE(FrameTable(frame_table_text(frames)).is_even());
}

MediaFile some_file(unsigned seed) {
  const Some some(seed);
  CodecParameters codec;
  codec.codec = "h264";
  codec.tag = 7;
  codec.profile = 100;
  codec.width = 64;
  codec.height = 48;
  codec.extradata = {std::byte{1}, std::byte{0}, std::byte{255}};
  codec.sample_aspect = {4, 3};
  codec.color_space = "bt709";
  MediaStream stream;
  stream.language = "eng";
  stream.is_default = true;
  stream.info.time_base = {1, 90'000};
  stream.info.rotation = 270;
  stream.info.mirrored = true;
  stream.info.samples = 12;
  stream.info.end_pts = kNoTime;
  stream.info.index = 2;
  stream.info.is_off_clock = true;
  stream.info.refreshes_gradually = true;
  stream.gaps = {{.before = -7, .samples = 3}, {.before = 1000, .samples = kMostTime}};
  stream.info.codec = std::make_shared<const CodecParameters>(codec);
  stream.frame_pts = some.frames;
  stream.packets = some.packets;
  return {.format = "mov", .streams = {stream, stream}, .faults = {"no durations"}};
}

TEST(MediaRecord, GivesBackAFile) {
  CodecPool codecs;
  const MediaFile file = some_file(4);
  const std::string text = media_record_text(file, codecs).value();
  const auto record = read_media_record(text, codecs);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->format, "mov");
  EXPECT_EQ(record->faults.at(0), "no durations");
  ASSERT_EQ(record->streams.size(), 2u);
  const StreamRecord& stream = record->streams[0];
  EXPECT_EQ(*stream.info.codec, *file.streams[0].info.codec);
  EXPECT_EQ(stream.info.codec, record->streams[1].info.codec) << "it is kept once";
  EXPECT_EQ(stream.language, "eng");
  EXPECT_TRUE(stream.is_default && stream.info.mirrored);
  EXPECT_EQ(stream.info.rotation, 270);
  EXPECT_EQ(stream.info.end_pts, kNoTime);
  EXPECT_EQ(stream.info.index, 2);
  EXPECT_TRUE(stream.info.is_off_clock);
  EXPECT_TRUE(stream.info.refreshes_gradually);
  EXPECT_EQ(stream.gaps, file.streams[0].gaps);
  EXPECT_EQ(packets_of(stream.packets), file.streams[0].packets);
}

TEST(MediaRecord, RefusesGapsThatCannotBe) {
  using Gaps = std::vector<SoundGap>;
  const std::vector<Gaps> impossible = {
      {{.before = 5, .samples = 0}},
      {{.before = 5, .samples = -1}},
      {{.before = kMostTime + 1, .samples = 1}},
      {{.before = kNoTime, .samples = 1}},
      {{.before = 5, .samples = 1}, {.before = 4, .samples = 1}},
      {{.before = 5, .samples = kMostTime}, {.before = 6, .samples = kMostTime + 1}},
      Gaps(MediaStream::kMostGaps + 1, {.before = 5, .samples = 1})};
  for (const Gaps& gaps : impossible) {
    CodecPool codecs;
    MediaFile file = some_file(4);
    file.streams[1].gaps = gaps;
    EXPECT_EQ(media_record_text(file, codecs).error().code(), Code::kDataLoss);
  }
}

TEST(CodecPool, TellsTextsOfOneHashApart) {
  const CodecPool::Hash hash = [](std::string_view) { return std::uint64_t{7}; };
  CodecPool codecs(hash);
  MediaFile file = some_file(4);
  CodecParameters wide = *file.streams[0].info.codec;
  wide.width = 4096;
  file.streams[1].info.codec = std::make_shared<const CodecParameters>(wide);
  const std::string text = media_record_text(file, codecs).value();
  const auto record = read_media_record(text, codecs);
  ASSERT_TRUE(record);
  EXPECT_EQ(*record->streams[0].info.codec, *file.streams[0].info.codec);
  EXPECT_EQ(record->streams[1].info.codec->width, 4096);
  EXPECT_EQ(media_record_text(file, codecs).value(), text) << "both have their numbers";
}

TEST(CodecPool, RefusesATextWhoseNumberIsTaken) {
  CodecPool codecs;
  CodecParameters wide;
  wide.width = 4096;
  const std::uint64_t number = codecs.add(wide);
  const std::uint64_t other = codecs.add({});
  ASSERT_NE(number, other);
  EXPECT_TRUE(codecs.add_text(number, codecs.text(number)));
  EXPECT_FALSE(codecs.add_text(number, codecs.text(other)));
  EXPECT_FALSE(codecs.add_text(1, codecs.text(other).substr(0, 3))) << "it is damaged";
  EXPECT_EQ(codecs.find(number)->width, 4096);
  EXPECT_EQ(codecs.find(1), nullptr);
}

TEST(MediaRecord, RefusesFilesWhoseTablesCannotBeRight) {
  CodecPool codecs;
  MediaFile file = some_file(4);
  file.streams[0].frame_pts = {5, 4};
  EXPECT_THAT(media_record_text(file, codecs).error().message(), HasSubstr("times of its frames"));
  file = some_file(4);
  file.streams[0].info.time_base = {0, 1};
  EXPECT_THAT(media_record_text(file, codecs).error().message(), HasSubstr("time base"));
  file = some_file(4);
  file.streams[0].info.codec = nullptr;
  EXPECT_FALSE(media_record_text(file, codecs));
}

TEST(MediaRecord, KnowsDamagedText) {
  CodecPool codecs;
  const std::string text = media_record_text(some_file(4), codecs).value();
  for (std::size_t size = 0; size < text.size(); size += 5)
    EXPECT_FALSE(read_media_record(std::string_view(text).substr(0, size), codecs));
  EXPECT_FALSE(read_media_record(text, CodecPool())) << "its codecs are not there";
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string other = text;
    other[random() % std::min<std::size_t>(other.size(), 200)] = static_cast<char>(random());
    if (const auto record = read_media_record(other, codecs)) {
      for (const StreamRecord& stream : record->streams) {
        std::vector<std::int64_t> times;
        stream.frames.take(stream.frames.size() / 2, 3, 16, times);
        EXPECT_LE(times.size(), 16u);
      }
    }
  }
}

}  // namespace
}  // namespace spdld::source

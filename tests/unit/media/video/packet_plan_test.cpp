// SPDX-License-Identifier: Apache-2.0
#include "media/video/packet_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spdld::media::test {
namespace {

// A packet for each number in decoding order; those of key frames have a mark behind them, and
// those behind a gap one before them.
std::vector<MediaPacket> packets_of(const std::string& text) {
  std::vector<MediaPacket> packets;
  for (std::size_t i = 0; i < text.size();) {
    MediaPacket packet;
    if (text[i] == '|') {
      packet.gap = true;
      ++i;
    }
    packet.pts = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
      packet.pts = packet.pts * 10 + (text[i] - '0');
    if (i < text.size() && text[i] == '*') {
      packet.key = true;
      ++i;
    }
    while (i < text.size() && text[i] == ' ') ++i;
    packets.push_back(packet);
  }
  return packets;
}

// 'B' for each packet that a decoder begins with, 's' for one that it is given, 't' for one that is
// tried, 'T' for one that it begins with and that is tried, '.' for the others.
std::string plan(const std::string& packets, const std::vector<std::int64_t>& wanted,
                 PacketPlan::Codec codec = {}) {
  PacketPlan plan;
  plan.make(packets_of(packets), wanted, codec);
  std::string text;
  for (const PacketPlan::Step step : plan.steps())
    text += step == PacketPlan::Step::kBegin      ? 'B'
            : step == PacketPlan::Step::kSend     ? 's'
            : step == PacketPlan::Step::kTry      ? 't'
            : step == PacketPlan::Step::kBeginTry ? 'T'
                                                  : '.';
  return text;
}

TEST(PacketPlan, GivesAllPacketsOfAWholeClip) {
  EXPECT_EQ(plan("0* 3 1 2 4* 7 5 6", {0, 1, 2, 3, 4, 5, 6, 7}), "Bsssssss");
}

TEST(PacketPlan, EndsWithTheLastWantedFrame) {
  EXPECT_EQ(plan("0* 3 1 2 4* 7 5 6", {0, 1}), "Bss.....");
  EXPECT_EQ(plan("0* 3 1 2 4* 7 5 6", {0, 1}, {.ends_early = false}), "Bsss....");
}

TEST(PacketPlan, LeavesOutGroupsWithoutAWantedFrame) {
  EXPECT_EQ(plan("0* 1 2 3* 4 5 6* 7 8", {1, 7}), "Bs....Bs.");
  EXPECT_EQ(plan("0* 1 2 3* 4 5 6* 7 8", {7}), "......Bs.");
}

TEST(PacketPlan, BeginsAnewBehindAGap) {
  EXPECT_EQ(plan("0* 1 2 |9* 10 11", {0, 1, 2, 9, 10}), "BssBs.");
}

TEST(PacketPlan, GoesOnIntoAnOpenGroupWhoseLeadingFramesAreWanted) {
  EXPECT_EQ(plan("0* 1 2 5* 3 4 6 7", {1, 4, 6}), "Bssssss.");
}

TEST(PacketPlan, LeavesOutLeadingFramesThatCannotBeDecoded) {
  EXPECT_EQ(plan("5* 3 4 6 7", {5, 6}), "B..s.");
  EXPECT_EQ(plan("0* 1 2 5* 3 4 6 7", {6}), "...B..s.");
}

TEST(PacketPlan, TriesLeadingFramesThatLaterOnesCount) {
  const PacketPlan::Codec codec{.counts_leading = true};
  EXPECT_EQ(plan("5* 3 4 6 7", {5, 6}, codec), "Btts.");
  EXPECT_EQ(plan("0* 1 2 5* 3 4 6 7", {1, 6}, codec), "Bs.Btts.");
}

TEST(PacketPlan, GivesTheLeadingFramesThatAreWanted) {
  EXPECT_EQ(plan("5* 3 4 6 7", {3}), "Bs...");
}

TEST(PacketPlan, BeginsSoFarBackThatFramesThatAreRefreshedGraduallyAreWhole) {
  const PacketPlan::Codec codec{.until_whole = 4};
  const std::string groups = "0* 1 2 3* 4 5 6* 7 8 9* 10 11";
  EXPECT_EQ(plan(groups, {1}, codec), "Bs..........") << "nothing comes before";
  EXPECT_EQ(plan(groups, {4}, codec), "Tttts.......");
  EXPECT_EQ(plan(groups, {8}, codec), "...Ttttss...");
  EXPECT_EQ(plan(groups, {4, 8}, codec), "Ttttsssss...") << "it goes on with what it has";
  EXPECT_EQ(plan(groups, {0, 11}, codec), "B.....Ttttss");
  // Those count that are shown later than all before them: 0, 3, 6, 9, 12, 15.
  EXPECT_EQ(plan("0* 3 1 2 6* 4 5 9 7 8 12* 10 11 15 13 14", {12}, codec), "Tttttttttts.....");
  // Nothing is begun before a gap.
  EXPECT_EQ(plan("0* 1 2 3* 4 |9* 10 12* 13", {4, 13}, codec), "TtttsBsss");
}

TEST(PacketPlan, LeavesOutWhatNoOtherPictureNeeds) {
  PacketPlan plan;
  const std::vector<MediaPacket> packets = packets_of("0* 3 1 2 6 4 5");
  const std::vector<std::uint8_t> disposable{1, 0, 1, 1, 0, 1, 1};
  plan.make(packets, std::vector<std::int64_t>{2, 5}, {}, disposable);
  using enum PacketPlan::Step;
  EXPECT_THAT(plan.steps(), testing::ElementsAre(kBegin, kSend, kSkip, kSend, kSend, kSkip, kSend));
  EXPECT_EQ(plan.sent(), 5U);
}

TEST(PacketPlan, TellsHowManyFramesHaveAPacket) {
  PacketPlan plan;
  std::vector<MediaPacket> packets = packets_of("0* 1 2");
  packets[1].discard = true;
  plan.make(packets, std::vector<std::int64_t>{0, 1, 2, 3}, {});
  EXPECT_EQ(plan.found(), 2U);
  EXPECT_EQ(plan.sent(), 3U);
}

TEST(PacketPlan, CountsAFrameOnceThatTwoPacketsHave) {
  PacketPlan plan;
  plan.make(packets_of("0* 1 1 2"), std::vector<std::int64_t>{1, 3}, {});
  EXPECT_EQ(plan.found(), 1U);
  EXPECT_EQ(plan.packet_of(0), 2U);
}

}  // namespace
}  // namespace spdld::media::test

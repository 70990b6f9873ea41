// SPDX-License-Identifier: Apache-2.0
#include "media/container/random_access.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> numbers) {
  Bytes bytes;
  for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
  return bytes;
}

// The units with their lengths in four bytes, or with start codes.
Bytes packet_of(const std::vector<Bytes>& units, std::size_t length_bytes) {
  Bytes packet;
  for (const Bytes& unit : units) {
    const Bytes before = length_bytes > 0 ? bytes_of({0, 0, static_cast<int>(unit.size() >> 8),
                                                      static_cast<int>(unit.size() & 255)})
                                          : bytes_of({0, 0, 1});
    packet.insert(packet.end(), before.begin(), before.end());
    packet.insert(packet.end(), unit.begin(), unit.end());
  }
  return packet;
}

Refresh refresh_of(std::string_view codec, const std::vector<Bytes>& units) {
  const Refresh by_length = refresh_at(codec, 4, packet_of(units, 4));
  EXPECT_EQ(refresh_at(codec, 0, packet_of(units, 0)), by_length);
  return by_length;
}

const Bytes kParameters = bytes_of({0x67, 0x64, 0, 0x0A});
const Bytes kSlice = bytes_of({0x41, 0x9A, 0x24});
const Bytes kIdr = bytes_of({0x65, 0x88, 0x84});
// Supplements: text of 300 bytes, and recovery points after 0, 1 and 5 frames.
Bytes text() {
  Bytes unit = bytes_of({6, 5, 255, 45});
  unit.insert(unit.end(), 300, std::byte{'x'});
  unit.push_back(std::byte{0x80});
  return unit;
}
const Bytes kAtOnce = bytes_of({6, 6, 1, 0xC4, 0x80});
const Bytes kAfterOne = bytes_of({6, 6, 1, 0x50, 0x80});
const Bytes kAfterFive = bytes_of({6, 6, 1, 0x31, 0x80});

TEST(Refresh, OfH264IsToldByItsRecoveryPoint) {
  EXPECT_EQ(refresh_of("h264", {kParameters, kIdr}), Refresh::kFull);
  EXPECT_EQ(refresh_of("h264", {text(), kIdr, kSlice}), Refresh::kFull);
  EXPECT_EQ(refresh_of("h264", {kAtOnce, kSlice}), Refresh::kFull);
  EXPECT_EQ(refresh_of("h264", {kParameters, kAfterOne, kSlice}), Refresh::kGradual);
  EXPECT_EQ(refresh_of("h264", {text(), kAfterFive, kSlice, kSlice}), Refresh::kGradual);
  EXPECT_EQ(refresh_of("h264", {kParameters, text(), kSlice}), Refresh::kNone);
  EXPECT_EQ(refresh_of("h264", {kSlice, kAtOnce}), Refresh::kNone);
}

TEST(Refresh, IsFoundBehindOtherMessagesOfAUnit) {
  // A message of two bytes, which hold what would be a start code, and the recovery point.
  const Bytes unit = bytes_of({6, 1, 4, 0, 0, 3, 1, 7, 6, 1, 0x31, 0x80});
  EXPECT_EQ(refresh_of("h264", {unit, kSlice}), Refresh::kGradual);
}

TEST(Refresh, OfHevcIsToldByItsKindOfPicture) {
  for (int type = 0; type < 32; ++type) {
    const Bytes parameters = bytes_of({32 << 1, 1, 0x0C});
    EXPECT_EQ(refresh_of("hevc", {parameters, bytes_of({type << 1, 1, 0x80})}),
              type >= 16 && type <= 23 ? Refresh::kFull : Refresh::kNone)
        << type;
  }
}

TEST(LeadingPictures, LackAReferenceUnlessTheirGroupIsClosed) {
  const auto lacks = [](std::string_view codec, const Bytes& key, const Bytes& leading) {
    return lacks_reference(codec, 0, packet_of({key}, 0), packet_of({leading}, 0));
  };
  EXPECT_TRUE(lacks("h264", kAtOnce, kSlice));
  EXPECT_FALSE(lacks("h264", kIdr, kSlice));
  constexpr int kSkipped = 8;
  constexpr int kDecodable = 6;
  const Bytes clean = bytes_of({21 << 1, 1, 0x80});
  EXPECT_TRUE(lacks("hevc", clean, bytes_of({kSkipped << 1, 1, 0x80})));
  EXPECT_TRUE(lacks("hevc", clean, bytes_of({(kSkipped + 1) << 1, 1, 0x80})));
  EXPECT_FALSE(lacks("hevc", clean, bytes_of({kDecodable << 1, 1, 0x80})));
  EXPECT_TRUE(lacks("mpeg2video", bytes_of({0xB8, 0, 8, 0, 0}), {}));
  EXPECT_FALSE(lacks("mpeg2video", bytes_of({0xB8, 0, 8, 0, 0x40}), {}));
  EXPECT_TRUE(lacks("mpeg4", {}, {}));
  EXPECT_FALSE(lacks("vp9", {}, {}));
}

TEST(Refresh, IsTakenForFullWhereNothingIsKnown) {
  EXPECT_EQ(refresh_of("vp9", {kSlice}), Refresh::kFull);
  EXPECT_EQ(refresh_of("h264", {}), Refresh::kFull);
  EXPECT_EQ(refresh_of("h264", {kParameters, kAfterFive}), Refresh::kFull);
  const Bytes packet = packet_of({text(), kAfterFive, kSlice}, 4);
  for (std::size_t size = 0; size + kSlice.size() < packet.size(); ++size)
    EXPECT_EQ(refresh_at("h264", 4, std::span(packet).first(size)), Refresh::kFull) << size;
}

}  // namespace
}  // namespace spdld::media::test

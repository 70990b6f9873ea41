// SPDX-License-Identifier: Apache-2.0
#include "source/file/part_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"

namespace spdld::source {
namespace {

const FileRange kShard{.root = 2, .uri = "a.tar", .expected = std::nullopt};

FetchedItem planned(const std::vector<Piece>& pieces, std::size_t most_ranges = 16,
                    std::optional<std::size_t> alone = std::nullopt) {
  FetchedItem item;
  item.begin();
  add_pieces(pieces, kShard, most_ranges, item, alone);
  return item;
}

// Reads the ranges of `item` from `file`, as a fetch does.
void read_ranges(const std::string& file, FetchedItem& item) {
  std::uint64_t end = 0;
  std::string bytes;
  for (const FileRange& range : item.ranges()) {
    bytes += file.substr(range.offset, range.size_bytes);
    item.end_range(end += range.size_bytes);
  }
  item.bytes.resize(bytes.size());
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(item.bytes.data()));
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(PartRanges, ReadNeighboursAtOnceInAnyOrder) {
  const FetchedItem item = planned({{.offset = 5120, .size_bytes = 10},
                                    {.offset = 512, .size_bytes = 2000},
                                    {.offset = 3584, .size_bytes = 600}});
  ASSERT_EQ(item.ranges().size(), 1u);
  EXPECT_EQ(item.ranges()[0].uri, "a.tar");
  EXPECT_EQ(item.ranges()[0].root, 2u);
  EXPECT_EQ(item.ranges()[0].offset, 512u);
  EXPECT_EQ(item.ranges()[0].size_bytes, 5130u - 512u);
}

TEST(PartRanges, LeaveOutWhatNobodyWants) {
  const std::uint64_t far = 512 + 100 + kMostBetween + 1;
  const FetchedItem item =
      planned({{.offset = 512, .size_bytes = 100}, {.offset = far, .size_bytes = 7}});
  ASSERT_EQ(item.ranges().size(), 2u);
  EXPECT_EQ(item.ranges()[1].offset, far);
  EXPECT_EQ(item.ranges()[1].size_bytes, 7u);
}

TEST(PartRanges, ReadWhatIsBetweenWhereThereWouldBeTooManyRanges) {
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < 5; ++i) pieces.push_back({.offset = i << 30, .size_bytes = 1});
  const FetchedItem item = planned(pieces, 3);
  ASSERT_EQ(item.ranges().size(), 3u);
  EXPECT_EQ(item.ranges()[2].offset, std::uint64_t{2} << 30);
  EXPECT_EQ(item.ranges()[2].size_bytes, (std::uint64_t{2} << 30) + 1);
}

TEST(PartRanges, LeaveOnePieceARangeOfItsOwn) {
  const std::vector<Piece> pieces{{.offset = 1024, .size_bytes = 10},
                                  {.offset = 512, .size_bytes = 20},
                                  {.offset = 2048, .size_bytes = 30}};
  const FetchedItem item = planned(pieces, 16, 0);
  ASSERT_EQ(item.ranges().size(), 3u);
  EXPECT_EQ(item.ranges()[1].offset, 1024u);
  EXPECT_EQ(item.ranges()[1].size_bytes, 10u);
  EXPECT_EQ(item.places_of(item.range_of(0)), 1u);
  EXPECT_EQ(planned(pieces, 1, 0).ranges().size(), 1u);
}

TEST(PartRanges, AskForNothingWhereAllPiecesAreEmpty) {
  EXPECT_TRUE(planned({{}, {.offset = 7}}).ranges().empty());
}

TEST(PartRanges, BringEveryPiecesBytesOfRandomFiles) {
  KeyedRng rng(11);
  std::string file(1 << 20, '\0');
  for (char& byte : file) byte = static_cast<char>(rng.next());
  for (int round = 0; round < 200; ++round) {
    std::vector<Piece> pieces(1 + rng.next() % kMostPieces);
    for (Piece& piece : pieces) {
      piece.offset = rng.next() % file.size();
      piece.size_bytes = rng.next() % 3 == 0 ? 0
                                             : rng.next() % std::min<std::uint64_t>(
                                                                5000, file.size() - piece.offset);
    }
    FetchedItem item = planned(pieces, 1 + rng.next() % 16, rng.next() % pieces.size());
    read_ranges(file, item);
    if (item.ranges().empty()) item.end_range(0);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      ASSERT_EQ(text(item.part(i)), file.substr(pieces[i].offset, pieces[i].size_bytes));
  }
}

}  // namespace
}  // namespace spdld::source

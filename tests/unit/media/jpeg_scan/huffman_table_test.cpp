// SPDX-License-Identifier: Apache-2.0
// A table's entries say what its codes say one by one.
#include "media/jpeg_scan/huffman_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/unit/media/jpeg/coded_jpeg_maker.h"

namespace spdld::media::test {
namespace {

using TableKind = HuffmanTable::Kind;

constexpr int kTableBits = HuffmanTable::kBits;

// What 16 bits begin with, by the codes alone.
struct FoundCode {
  HuffmanTable::Symbol symbol;
  int used = 0;  // bits, of the code and of the value
  std::int32_t value = 0;
};

FoundCode found_in(const HuffmanTable& table, std::uint32_t bits) {
  FoundCode found{.symbol = table.find(bits)};
  found.used = found.symbol.length + found.symbol.size;
  found.value =
      HuffmanTable::value_of(std::uint64_t{bits} << 48 << found.symbol.length, found.symbol.size);
  return found;
}

void expect_entry(const HuffmanTable& table, TableKind kind, std::uint32_t index) {
  SCOPED_TRACE("entry " + std::to_string(index));
  const HuffmanTable::Entry& entry = table.entries()[index];
  const std::uint32_t bits = index << (16 - kTableBits);
  const FoundCode first = found_in(table, bits);
  if (first.symbol.length == 0 || first.symbol.length > kTableBits) {
    EXPECT_TRUE(entry.is_empty());
    return;
  }
  ASSERT_FALSE(entry.is_empty());
  if (!entry.fits()) {
    EXPECT_TRUE(first.used > kTableBits || first.symbol.size > 7);
    EXPECT_EQ(entry.length, first.symbol.length);
    EXPECT_EQ(entry.run(), first.symbol.run);
    EXPECT_EQ(entry.size(), first.symbol.size);
    return;
  }
  ASSERT_LE(first.used, kTableBits);
  if (first.symbol.ends_block) {
    EXPECT_EQ(first.symbol.run, 0) << "a run would be written behind the block";
    EXPECT_EQ(entry.length, first.used);
    EXPECT_EQ(entry.advance, HuffmanTable::Entry::kToEnd);
    return;
  }
  EXPECT_EQ(entry.run(), first.symbol.run);
  EXPECT_EQ(entry.first(), first.value);
  const int alone = first.symbol.run + 1;
  if (entry.length == first.used) {
    EXPECT_EQ(entry.advance, alone);
    EXPECT_EQ(entry.second(), 0);
    return;
  }
  ASSERT_EQ(kind, TableKind::kAc) << "behind the first coefficient of a block other codes follow";
  const FoundCode second = found_in(table, bits << first.used & 0xFFFF);
  ASSERT_NE(second.symbol.length, 0);
  EXPECT_EQ(entry.length, first.used + second.used);
  ASSERT_LE(entry.length, kTableBits);
  if (second.symbol.ends_block) {
    EXPECT_GE(entry.advance, HuffmanTable::Entry::kToEnd);
    EXPECT_EQ(entry.second(), 0);
  } else {
    EXPECT_EQ(entry.advance, alone + second.symbol.run + 1);
    EXPECT_EQ(entry.second(), second.value);
  }
}

TEST(HuffmanTable, EachEntryIsWhatItsCodesSay) {
  KeyedRng rng(1);
  for (int i = 0; i < 50; ++i) {
    const TableKind kind = i % 2 == 0 ? TableKind::kAc : TableKind::kDc;
    HuffmanTable table;
    table.build(drawn_codes(rng, kind == TableKind::kAc), kind);
    SCOPED_TRACE("table " + std::to_string(i));
    for (std::uint32_t index = 0; index < 1u << kTableBits; ++index)
      expect_entry(table, kind, index);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ScanBits, AreThoseOfTheScanOneAfterTheOtherAndZerosBehindIt) {
  KeyedRng rng(2);
  std::vector<std::byte> scan(500);
  for (std::byte& byte : scan) byte = static_cast<std::byte>(rng.below(255));  // none is FF
  ScanBytes bytes;
  bytes.reset(scan.size(), 1);
  bytes.add(scan, 0, scan.size());
  const auto bit_at = [&](std::uint64_t at) -> std::uint64_t {
    return at / 8 < scan.size() ? std::to_integer<unsigned>(scan[at / 8]) >> (7 - at % 8) & 1 : 0;
  };
  ScanBits in;
  std::uint64_t at = 0;
  while (at < 8 * scan.size() + 300) {
    in.refill(bytes);
    for (std::uint32_t left = ScanBytes::kLoaded; left > 0;) {
      ASSERT_EQ(in.at(), at);
      for (std::uint32_t i = 0; i < left; ++i)
        ASSERT_EQ(in.bits() >> (63 - i) & 1, bit_at(at + i)) << "bit " << at + i;
      const auto taken = static_cast<std::uint32_t>(rng.below(left + 1));
      in.skip(taken);
      at += taken;
      left -= taken;
      if (rng.below(4) == 0) break;
    }
  }
}

TEST(ScanBytes, PartsMayRepeatAZeroEachWhereAScanHasAsManyAsItMay) {
  // All zeros that a scan may have, and an FF where each part begins.
  std::vector<std::byte> scan(40'000);
  const std::size_t most = ScanBytes::most_stuffed(scan.size());
  for (std::size_t i = 0; i < most; ++i) scan[2 * i] = std::byte{0xFF};
  constexpr std::size_t kParts = 10;
  ScanBytes bytes;
  bytes.reset(scan.size() + 2 * kParts, kParts);
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::size_t from = 2 * (i * most / kParts);
    const std::size_t next = i + 1 == kParts ? scan.size() : 2 * ((i + 1) * most / kParts) + 2;
    EXPECT_EQ(bytes.add(scan, from, next), next) << "part " << i;
  }
  EXPECT_EQ(bytes.stuffed().size(), most + kParts - 1);
}

}  // namespace
}  // namespace spdld::media::test

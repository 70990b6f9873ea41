// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/huffman_table.h"

#include <algorithm>
#include <bit>

namespace spdld::media {
namespace {

constexpr int kBits = HuffmanTable::kBits;
constexpr int kMostFirst = 7;   // bits of a first coefficient that an entry has room for
constexpr int kMostSecond = 3;  // likewise of a second
constexpr int kZeroRun = 15;
static_assert(kMostDcSize < 16, "half a byte of an entry says how many bits do not fit");
static_assert(1 << kMostSecond <= 8, "half a byte of an entry holds the second coefficient");

using Entry = HuffmanTable::Entry;

std::uint8_t byte(int value) { return static_cast<std::uint8_t>(value); }
std::int8_t halves(int lower, int upper) { return static_cast<std::int8_t>(lower | upper * 16); }

// Of a symbol whose coefficient fits.
Entry first_entry(const HuffmanTable::Symbol& symbol, std::int32_t value) {
  const std::uint8_t length = byte(symbol.length + symbol.size);
  if (symbol.ends_block) return {.length = length, .advance = Entry::kToEnd};
  return {.length = length,
          .advance = byte(symbol.run + 1),
          .run_and_second = halves(symbol.run, 0),
          .value = static_cast<std::int8_t>(value)};
}

// Of a second symbol: what is added to the entry of the first.
Entry second_entry(const HuffmanTable::Symbol& symbol, std::int32_t value) {
  const std::uint8_t length = byte(symbol.length + symbol.size);
  if (symbol.ends_block) return {.length = length, .advance = Entry::kToEnd - 1};
  return {.length = length, .advance = byte(symbol.run + 1), .run_and_second = halves(0, value)};
}

// No part of it overflows into the next.
Entry both(const Entry& first, const Entry& second) {
  return std::bit_cast<Entry>(std::bit_cast<std::uint32_t>(first) +
                              std::bit_cast<std::uint32_t>(second));
}

// Of a symbol whose coefficient does not fit.
Entry long_entry(const HuffmanTable::Symbol& symbol) {
  return {.length = byte(symbol.length), .run_and_second = halves(symbol.run, symbol.size)};
}

// Calls visit(symbol's number, its code, its length) for each code of up to kBits bits.
template <typename Visit>
void for_each_code(const HuffmanCodes& codes, const Visit& visit) {
  std::uint32_t code = 0;
  std::size_t symbol = 0;
  for (int length = 1; length <= kBits; ++length) {
    for (int i = 0; i < codes.counts[static_cast<std::size_t>(length - 1)]; ++i)
      visit(codes.symbols[symbol++], code++, length);
    code <<= 1;
  }
}

}  // namespace

HuffmanTable::Symbol HuffmanTable::symbol_of(std::uint8_t value, int length) const {
  const bool is_dc = kind_ == Kind::kDc;
  Symbol symbol{
      .length = length, .run = is_dc ? 0 : value >> 4, .size = is_dc ? value : value & 15};
  symbol.ends_block = !is_dc && symbol.size == 0 && symbol.run != kZeroRun;
  if (symbol.ends_block) symbol.run = 0;  // as libjpeg-turbo takes all of these for the block's end
  return symbol;
}

HuffmanTable::Symbol HuffmanTable::find(std::uint32_t bits, int least) const {
  for (auto length = static_cast<std::size_t>(least); length < end_.size(); ++length) {
    if (bits >= end_[length]) continue;
    const auto at = symbol_[length] + static_cast<std::int32_t>(bits >> (16 - length));
    return symbol_of(codes_.symbols[static_cast<std::size_t>(at) & 255], static_cast<int>(length));
  }
  return {};
}

void HuffmanTable::build(const HuffmanCodes& codes, Kind kind) {
  if (is_built_ && kind == kind_ && codes == codes_) return;
  codes_ = codes;
  kind_ = kind;
  is_built_ = true;
  std::uint32_t code = 0;
  std::int32_t symbol = 0;
  for (std::size_t length = 1; length < end_.size(); ++length) {
    const std::uint32_t count = codes.counts[length - 1];
    symbol_[length] = symbol - static_cast<std::int32_t>(code);
    symbol += static_cast<std::int32_t>(count);
    code += count;
    end_[length] = code << (16 - length);
    code <<= 1;
  }
  // Behind the first coefficient of a block other codes follow.
  Seconds seconds{};
  if (kind == Kind::kAc) add_seconds(seconds);
  build_entries(seconds);
}

void HuffmanTable::add_seconds(Seconds& seconds) const {
  for_each_code(codes_, [&](std::uint8_t value, std::uint32_t code, int length) {
    const Symbol symbol = symbol_of(value, length);
    const int used = length + symbol.size;
    if (symbol.size > kMostSecond) return;
    for (int left = used; left < kBits; ++left) {
      const std::size_t room = std::size_t{1} << (left - used);
      auto* at = seconds.data() + (std::size_t{1} << left) + (std::size_t{code} << (left - length));
      for (std::uint32_t bits = 0; bits < 1u << symbol.size; ++bits, at += room)
        std::fill_n(at, room, second_entry(symbol, extend(bits, symbol.size)));
    }
  });
}

void HuffmanTable::build_entries(const Seconds& seconds) {
  entries_.fill({});
  for_each_code(codes_, [&](std::uint8_t value, std::uint32_t code, int length) {
    const Symbol symbol = symbol_of(value, length);
    const int used = length + symbol.size;
    auto* at = entries_.data() + (std::size_t{code} << (kBits - length));
    if (used > kBits || symbol.size > kMostFirst) {
      std::fill_n(at, std::size_t{1} << (kBits - length), long_entry(symbol));
      return;
    }
    const std::size_t room = std::size_t{1} << (kBits - used);
    const Entry* const second = seconds.data() + room;
    for (std::uint32_t bits = 0; bits < 1u << symbol.size; ++bits, at += room) {
      const Entry first = first_entry(symbol, extend(bits, symbol.size));
      if (symbol.ends_block) {
        std::fill_n(at, room, first);
      } else {
        for (std::size_t i = 0; i < room; ++i) at[i] = both(first, second[i]);
      }
    }
  });
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/huffman_table.h"

#include <algorithm>

namespace spdld::media {
namespace {

constexpr int kBits = HuffmanTable::kBits;
constexpr int kMostFirst = 8;   // bits of a first coefficient that an entry has room for
constexpr int kMostSecond = 5;  // likewise of a second
constexpr std::uint32_t kZeroRun = 15;

constexpr std::uint32_t advance(std::uint32_t count) { return count << 10; }

// Of a symbol whose coefficient fits.
std::uint32_t first_word(const HuffmanTable::Symbol& symbol, std::int32_t value) {
  const auto length = static_cast<std::uint32_t>(symbol.length + symbol.size);
  if (symbol.ends_block) return length | advance(HuffmanTable::Entry::kToEnd);
  const auto run = static_cast<std::uint32_t>(symbol.run);
  return length | run << 6 | advance(run + 1) | static_cast<std::uint32_t>(value) << 23;
}

// What it adds to the word of the symbol before it.
std::uint32_t second_word(const HuffmanTable::Symbol& symbol, std::int32_t value) {
  const auto length = static_cast<std::uint32_t>(symbol.length + symbol.size);
  if (symbol.ends_block) return length | advance(HuffmanTable::Entry::kToEnd - 1);
  return length | advance(static_cast<std::uint32_t>(symbol.run) + 1) |
         (static_cast<std::uint32_t>(value) & 63) << 17;
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
        std::fill_n(at, room, second_word(symbol, extend(bits, symbol.size)));
    }
  });
}

void HuffmanTable::build_entries(const Seconds& seconds) {
  entries_.fill(0);
  for_each_code(codes_, [&](std::uint8_t value, std::uint32_t code, int length) {
    const Symbol symbol = symbol_of(value, length);
    const int used = length + symbol.size;
    auto* at = entries_.data() + (std::size_t{code} << (kBits - length));
    if (used > kBits || symbol.size > kMostFirst) {
      std::fill_n(at, std::size_t{1} << (kBits - length),
                  static_cast<std::uint32_t>(length) | static_cast<std::uint32_t>(symbol.run) << 6 |
                      static_cast<std::uint32_t>(symbol.size) << 17);
      return;
    }
    const std::size_t room = std::size_t{1} << (kBits - used);
    const std::uint32_t* const second = seconds.data() + room;
    for (std::uint32_t bits = 0; bits < 1u << symbol.size; ++bits, at += room) {
      const std::uint32_t word = first_word(symbol, extend(bits, symbol.size));
      for (std::size_t i = 0; i < room; ++i) at[i] = word + (symbol.ends_block ? 0 : second[i]);
    }
  });
}

}  // namespace spdld::media

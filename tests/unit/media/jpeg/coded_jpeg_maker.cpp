// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/jpeg/coded_jpeg_maker.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "media/jpeg_scan/huffman_table.h"

namespace spdld::media::test {
namespace {

constexpr std::uint8_t kEndOfBlock = 0x00, kZeroRun = 0xF0;
constexpr int kMostDc = 1500;  // far enough from where an index cannot hold it

struct Code {
  std::uint32_t bits = 0;
  int length = 0;
  std::uint8_t symbol = 0;
};

std::vector<Code> codes_of(const HuffmanCodes& codes) {
  std::vector<Code> all;
  std::uint32_t next = 0;
  for (std::size_t length = 1; length <= codes.counts.size(); ++length, next <<= 1) {
    for (int i = 0; i < codes.counts[length - 1]; ++i)
      all.push_back({next++, static_cast<int>(length), codes.symbols[all.size()]});
  }
  return all;
}

class JpegWriter {
 public:
  JpegWriter() { bytes({0xFF, 0xD8}); }

  void bytes(std::initializer_list<std::size_t> values) {
    for (const std::size_t value : values) file_.push_back(static_cast<std::byte>(value));
  }
  void marker(std::size_t code, std::size_t body_bytes) {
    bytes({0xFF, code, (body_bytes + 2) >> 8, (body_bytes + 2) & 255});
  }
  void table(std::size_t id, const HuffmanCodes& codes) {
    const std::size_t count = codes_of(codes).size();
    marker(0xC4, 17 + count);
    bytes({id});
    for (const std::uint8_t of_length : codes.counts) bytes({of_length});
    for (std::size_t i = 0; i < count; ++i) bytes({codes.symbols[i]});
  }
  // Of the scan.
  void bits(std::uint32_t value, int count) {
    while (count-- > 0) {
      byte_ = byte_ << 1 | (value >> count & 1);
      if (++bits_ < 8) continue;
      bytes({byte_});
      if (byte_ == 0xFF) bytes({0});
      byte_ = 0;
      bits_ = 0;
    }
  }
  std::vector<std::byte> end() {
    if (bits_ > 0) bits(0xFF, 8 - bits_);
    bytes({0xFF, 0xD9});
    return std::move(file_);
  }

 private:
  std::vector<std::byte> file_;
  std::uint32_t byte_ = 0;
  int bits_ = 0;
};

class Blocks {
 public:
  Blocks(const HuffmanCodes& dc, const HuffmanCodes& ac, KeyedRng& rng)
      : dc_(codes_of(dc)),
        ac_(codes_of(ac)),
        end_(*std::find_if(ac_.begin(), ac_.end(),
                           [](const Code& code) { return code.symbol == kEndOfBlock; })),
        rng_(rng),
        ends_one_in_(1 + rng.below(30)) {}

  void write(JpegWriter& to) {
    write_dc(to);
    for (int k = 1; k < 64;) {
      const Code& code = any_of(ac_);
      const int run = code.symbol >> 4, size = code.symbol & 15;
      const bool is_end = size == 0 && code.symbol != kZeroRun;
      if (is_end || k + run > 63 || rng_.below(ends_one_in_) == 0) {
        const Code& end = is_end ? code : end_;
        to.bits(end.bits, end.length);
        return;
      }
      to.bits(code.bits, code.length);
      to.bits(static_cast<std::uint32_t>(rng_.below(1u << size)), size);
      k += run + 1;
    }
  }

 private:
  const Code& any_of(const std::vector<Code>& codes) { return codes[rng_.below(codes.size())]; }

  void write_dc(JpegWriter& to) {
    for (;;) {
      const Code& code = any_of(dc_);
      const int size = code.symbol;
      const auto value = static_cast<std::uint32_t>(rng_.below(1u << size));
      const std::int32_t change = HuffmanTable::extend(value, size);
      if (std::abs(last_ + change) > kMostDc) continue;
      last_ += change;
      to.bits(code.bits, code.length);
      to.bits(value, size);
      return;
    }
  }

  const std::vector<Code> dc_;
  const std::vector<Code> ac_;
  const Code end_;  // of a block
  KeyedRng& rng_;
  const std::uint64_t ends_one_in_;
  int last_ = 0;
};

}  // namespace

HuffmanCodes drawn_codes(KeyedRng& rng, bool is_ac) {
  std::vector<std::uint8_t> symbols;
  if (is_ac) {
    for (int run = 0; run < 16; ++run) {
      for (int size = 1; size <= 10; ++size)
        symbols.push_back(static_cast<std::uint8_t>(run << 4 | size));
      // A run of zeros and no coefficient behind it: the block ends, or 16 zeros follow.
      if (run > 0) symbols.push_back(static_cast<std::uint8_t>(run << 4));
    }
  } else {
    for (int size = 1; size <= kMostDcSize; ++size)
      symbols.push_back(static_cast<std::uint8_t>(size));
  }
  for (std::size_t i = symbols.size() - 1; i > 0; --i)
    std::swap(symbols[i], symbols[rng.below(i + 1)]);

  HuffmanCodes codes;
  std::uint64_t left = 1 + rng.below(symbols.size());
  std::uint64_t given = 0;
  std::uint64_t room = 1;  // codes of this length that no shorter one begins
  for (std::size_t i = 0; i < codes.counts.size(); ++i) {
    room *= 2;
    // One must be left, as no code is all ones. The last length takes what is left.
    const std::uint64_t most = std::min(left, room - 1);
    const std::uint64_t count =
        i + 1 == codes.counts.size() ? most : rng.below(std::min<std::uint64_t>(most, 40) + 1);
    codes.counts[i] = static_cast<std::uint8_t>(count);
    given += count;
    left -= count;
    room -= count;
  }
  symbols.resize(given);
  symbols[rng.below(given)] = 0;  // the end of a block, or a difference of 0
  std::copy(symbols.begin(), symbols.end(), codes.symbols.begin());
  return codes;
}

std::vector<std::byte> drawn_jpeg(KeyedRng& rng, std::size_t least_height) {
  constexpr std::array<std::array<std::size_t, 2>, 3> kLuma = {{{1, 1}, {2, 1}, {2, 2}}};
  const std::size_t components = rng.below(4) == 0 ? 1 : 3;
  const auto [h, v] = kLuma[components == 1 ? 0 : rng.below(kLuma.size())];
  const std::size_t width = 5 + rng.below(120), height = least_height + rng.below(60);
  JpegWriter to;
  to.marker(0xDB, 65);
  to.bytes({0});
  for (int i = 0; i < 64; ++i) to.bytes({1 + rng.below(255)});
  to.marker(0xC0, 6 + 3 * components);
  to.bytes({8, height >> 8, height & 255, width >> 8, width & 255, components});
  for (std::size_t i = 0; i < components; ++i) to.bytes({i + 1, i == 0 ? h << 4 | v : 0x11, 0});
  std::vector<Blocks> blocks;
  for (std::size_t i = 0; i < components; ++i) {
    const HuffmanCodes dc = drawn_codes(rng, false), ac = drawn_codes(rng, true);
    to.table(i, dc);
    to.table(16 + i, ac);
    blocks.emplace_back(dc, ac, rng);
  }
  to.marker(0xDA, 4 + 2 * components);
  to.bytes({components});
  for (std::size_t i = 0; i < components; ++i) to.bytes({i + 1, i << 4 | i});
  to.bytes({0, 63, 0});
  const std::size_t mcus = ((width + 8 * h - 1) / (8 * h)) * ((height + 8 * v - 1) / (8 * v));
  for (std::size_t mcu = 0; mcu < mcus; ++mcu) {
    for (std::size_t i = 0; i < components; ++i) {
      for (std::size_t n = 0; n < (i == 0 ? h * v : 1); ++n) blocks[i].write(to);
    }
  }
  return to.end();
}

}  // namespace spdld::media::test

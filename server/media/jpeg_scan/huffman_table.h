// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "media/jpeg_scan/baseline_frame.h"
#include "media/jpeg_scan/scan_bytes.h"

namespace spdld::media {

// Turns the bits of a scan into coefficients: one look at the next kBits bits gives a coefficient
// with the zeros before it, and where two fit both.
class HuffmanTable {
 public:
  static constexpr int kBits = 11;

  // What one look finds. Each field is a byte, so that one instruction loads it: no shift and no
  // mask is needed.
  struct Entry {
    // Bits that have been used; of a coefficient whose bits do not fit, those of its code; 0: the
    // code is longer than kBits, or none.
    std::uint8_t length = 0;
    // How many coefficients these are, with the zeros; at least kToEnd: the block ends; 0: the
    // coefficient's bits do not fit, and follow the code.
    std::uint8_t advance = 0;
    // In the lower half: how many zeros precede the first coefficient. In the upper half: the
    // second one, which is the last of them; 0 if there is none. Where the first does not fit: how
    // many bits it has.
    std::int8_t run_and_second = 0;
    std::int8_t value = 0;  // of the first coefficient

    static constexpr std::uint8_t kToEnd = 63;
    static constexpr std::uint8_t kMostAdvance = 15 + kToEnd;

    bool is_empty() const { return length == 0; }
    bool fits() const { return advance != 0; }
    int run() const { return run_and_second & 15; }
    std::int16_t first() const { return static_cast<std::int16_t>(value); }
    std::int16_t second() const { return static_cast<std::int16_t>(run_and_second >> 4); }
    int size() const { return run_and_second >> 4 & 15; }  // of one that does not fit
  };

  struct Symbol {
    int length = 0;  // of its code; 0: there is no such code
    int run = 0;
    int size = 0;  // bits of the coefficient
    bool ends_block = false;

    // The coefficient, of bits that begin with the code.
    std::int32_t value_in(std::uint64_t bits) const { return value_of(bits << length, size); }
  };

  enum class Kind { kDc, kAc };

  // Of codes that read_baseline_frame() has found sound. Cheap if it was built of them before.
  void build(const HuffmanCodes& codes, Kind kind);
  const Entry* entries() const { return entries_.data(); }
  // Of the code that 16 bits begin with, whose length is at least `least`.
  Symbol find(std::uint32_t bits, int least = 1) const;

  // Looks at what one load of ScanBytes gives.
  static constexpr int kLooks = ScanBytes::kLoaded / kBits;
  // Which entry bits begin with, from the highest.
  static std::uint64_t index_of(std::uint64_t bits) { return bits >> (64 - kBits); }
  // The number that the highest `size` of these bits stand for.
  static std::int32_t value_of(std::uint64_t bits, int size) {
    return size == 0 ? 0 : extend(static_cast<std::uint32_t>(bits >> (64 - size)), size);
  }
  // The number that `size` bits stand for (T.81, F.2.2.1).
  static std::int32_t extend(std::uint32_t bits, int size) {
    const std::int32_t value = static_cast<std::int32_t>(bits);
    return size == 0 || bits >> (size - 1) != 0 ? value : value - (1 << size) + 1;
  }

 private:
  Symbol symbol_of(std::uint8_t value, int length) const;
  // What a second symbol adds to an entry of whose bits n, a power of two, are left is at n + w,
  // where w is a number of so many bits.
  using Seconds = std::array<Entry, 1 << kBits>;
  void add_seconds(Seconds& seconds) const;
  void build_entries(const Seconds& seconds);

  // Not aligned to a cache line: a decoder would have to be allocated so, and glibc before 2.38
  // cannot use the place of an over-aligned block again for another of its size.
  std::array<Entry, 1 << kBits> entries_{};
  HuffmanCodes codes_;
  Kind kind_ = Kind::kDc;
  bool is_built_ = false;
  std::array<std::uint32_t, 17> end_{};    // by length: behind its last code, as 16 bits
  std::array<std::int32_t, 17> symbol_{};  // by length: which symbol its code 0 would have
};

}  // namespace spdld::media

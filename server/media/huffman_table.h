// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "media/baseline_frame.h"
#include "media/scan_bytes.h"

namespace spdld::media {

// Turns the bits of a scan into coefficients: one look at the next kBits bits gives a coefficient
// with the zeros before it, and where two fit both.
class HuffmanTable {
 public:
  static constexpr int kBits = 11;

  // What a look finds, in one word:
  //   bits 0 to 5    how many bits have been used; none: the code is longer than kBits, or none
  //   bits 6 to 9    how many zeros precede the first coefficient
  //   bits 10 to 16  how many coefficients these are, with the zeros; at least kToEnd: the block
  //                  ends; 0: the coefficient's bits do not fit, and follow the code
  //   bits 17 to 22  the second coefficient, which is the last of them; 0 if there is none. Where
  //                  the first does not fit: how many bits it has
  //   bits 23 to 31  the first coefficient
  class Entry {
   public:
    static constexpr std::uint32_t kFits = 127u << 10;
    static constexpr std::uint32_t kToEnd = 63;

    constexpr explicit Entry(std::uint32_t word) : word_(word) {}
    bool is_empty() const { return word_ == 0; }
    bool fits() const { return (word_ & kFits) != 0; }
    std::uint32_t word() const { return word_; }
    std::uint32_t length() const { return word_ & 63; }
    std::uint32_t run() const { return word_ >> 6 & 15; }
    std::uint32_t advance() const { return word_ >> 10 & 127; }
    std::int16_t second() const {
      return static_cast<std::int16_t>(static_cast<std::int32_t>(word_ << 9) >> 26);
    }
    std::int16_t first() const {
      return static_cast<std::int16_t>(static_cast<std::int32_t>(word_) >> 23);
    }
    std::uint32_t size() const { return word_ >> 17 & 63; }  // of one that does not fit

   private:
    std::uint32_t word_;
  };

  struct Symbol {
    int length = 0;  // of its code; 0: there is no such code
    int run = 0;
    int size = 0;  // bits of the coefficient
    bool ends_block = false;
  };

  enum class Kind { kDc, kAc };

  // Cheap if these codes are what it was built of before.
  void build(const HuffmanCodes& codes, Kind kind);
  const std::uint32_t* entries() const { return entries_.data(); }
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
  using Seconds = std::array<std::uint32_t, 1 << kBits>;
  void add_seconds(Seconds& seconds) const;
  void build_entries(const Seconds& seconds);

  // Not aligned to a cache line: a decoder would have to be allocated so, and glibc before 2.38
  // cannot use the place of an over-aligned block again for another of its size.
  std::array<std::uint32_t, 1 << kBits> entries_{};
  HuffmanCodes codes_;
  Kind kind_ = Kind::kDc;
  bool is_built_ = false;
  std::array<std::uint32_t, 17> end_{};    // by length: behind its last code, as 16 bits
  std::array<std::int32_t, 17> symbol_{};  // by length: which symbol its code 0 would have
};

}  // namespace spdld::media

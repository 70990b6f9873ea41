// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/memory/byte_buffer.h"

namespace spdld::media {

// Parts of a JPEG scan without the zeros that follow each FF in a file, so that a decoder can look
// at any 64 bits of them at once. It may look ahead of a part's end: zeros follow.
class ScanBytes {
 public:
  // Memory for a whole scan of so many bytes at most, unless it has too many zeros to leave out.
  static std::uint64_t most_bytes(std::uint64_t scan_bytes) {
    return ByteBuffer::grown(scan_bytes + 2 * kTail) +
           2 * sizeof(std::uint32_t) * most_stuffed(scan_bytes);
  }
  // Zeros that are left out of a sound scan: its codes are as random bits, of which one byte in 256
  // is FF. What has many more of them was made to be so.
  static std::uint64_t most_stuffed(std::uint64_t scan_bytes) { return 1024 + scan_bytes / 32; }

  // Has room for so many bytes in so many parts, and none in it. Parts may have a stuffed zero in
  // common with the part before. Places in it stay as they are until the next call.
  void reset(std::size_t bytes, std::size_t parts);
  // Adds the bytes [from, to) of the scan, or up to a marker. Returns where in the scan it ended.
  std::size_t add(std::span<const std::byte> scan, std::size_t from, std::size_t to);

  std::size_t size() const { return size_; }  // with the zeros behind each part
  const std::byte* data() const { return bytes_.data(); }
  // Where the last 8 bytes begin that are there.
  std::uint64_t last_byte() const { return last_byte_; }
  // Bits that load() and ScanBits::refill() give at least.
  static constexpr int kLoaded = 56;
  // The 64 bits from this byte on. Beyond the end: zeros.
  std::uint64_t load_byte(std::uint64_t byte) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + std::min(byte, last_byte_), sizeof value);
    return __builtin_bswap64(value);
  }
  // Those from this bit on, of which the last 7 may be zeros instead.
  std::uint64_t load(std::uint64_t bit) const { return load_byte(bit >> 3) << (bit & 7); }
  // Where zeros were left out: behind these bytes, in order.
  std::span<const std::uint32_t> stuffed() const { return stuffed_; }

 private:
  static constexpr std::size_t kTail = 16;

  ByteBuffer bytes_;
  std::size_t size_ = 0;
  std::uint64_t last_byte_ = 0;
  std::size_t parts_ = 1;
  std::vector<std::uint32_t> stuffed_;
};

// Takes the bits of ScanBytes one after the other. Where the next load begins does not depend on
// the last code, so that a processor has loaded it by then.
class ScanBits {
 public:
  // Then kLoaded bits are there.
  void refill(const ScanBytes& bytes) {
    bits_ |= bytes.load_byte(next_) >> count_;
    next_ += (63 - count_) >> 3;
    count_ |= ScanBytes::kLoaded;
  }
  std::uint64_t bits() const { return bits_; }  // what comes next, from the highest
  // Takes so many of those that are there.
  void skip(std::uint32_t count) {
    bits_ <<= count;
    count_ -= count;
  }
  std::uint64_t at() const { return 8 * next_ - count_; }  // in bits of ScanBytes

 private:
  std::uint64_t bits_ = 0;
  std::uint64_t count_ = 0;  // of them are there; those below are 0 or what comes next
  std::uint64_t next_ = 0;   // in bytes: what is loaded next
};

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "media/jpeg_scan/scan_bytes.h"

namespace spdld::media {

// A baseline scan that is read from its begin to the image's end, and the entries of its index that
// are found on the way. Used by one thread.
class WholeScan {
 public:
  // False: the scan is larger than an index can tell of, or is not followed by the image's end.
  bool begin(std::span<const std::byte> scan);

  const ScanBytes& bytes() const { return bytes_; }
  std::uint64_t bits() const { return bits_; }
  // Whether nothing but padding follows this bit.
  bool ends_at(std::uint64_t bit) const { return bit <= bits_ && bits_ - bit < 8; }

  // Forgets all entries.
  void restart();
  // Before an MCU that begins at this bit, which is behind those before it. False: an index cannot
  // tell of such coefficients.
  bool add_entry(std::uint64_t bit, const std::array<std::int32_t, 3>& dc);
  // They stay until the next call of begin() or restart().
  std::span<const std::uint64_t> entries() const { return entries_; }

 private:
  ScanBytes bytes_;
  std::uint64_t bits_ = 0;
  std::size_t stuffed_ = 0;  // zeros that were left out before the last entry
  std::vector<std::uint64_t> entries_;
};

}  // namespace spdld::media

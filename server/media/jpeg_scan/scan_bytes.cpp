// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/scan_bytes.h"

namespace spdld::media {

void ScanBytes::reset(std::size_t bytes, std::size_t parts) {
  bytes_.resize(bytes + (parts + 1) * kTail);
  size_ = 0;
  last_byte_ = 0;
  parts_ = parts;
  stuffed_.clear();
}

std::size_t ScanBytes::add(std::span<const std::byte> scan, std::size_t from, std::size_t to) {
  std::byte* out = bytes_.data() + size_;
  while (from < to) {
    const void* const found = std::memchr(scan.data() + from, 0xFF, to - from);
    const std::size_t ff =
        found == nullptr
            ? to
            : static_cast<std::size_t>(static_cast<const std::byte*>(found) - scan.data());
    std::memcpy(out, scan.data() + from, ff - from);
    out += ff - from;
    from = ff;
    if (ff == to) break;
    if (ff + 1 >= scan.size() || scan[ff + 1] != std::byte{0}) break;
    if (stuffed_.size() == most_stuffed(scan.size()) + parts_ - 1) break;
    stuffed_.push_back(static_cast<std::uint32_t>(out - bytes_.data()));
    *out++ = std::byte{0xFF};
    from += 2;
  }
  std::memset(out, 0, 2 * kTail);
  size_ = static_cast<std::size_t>(out - bytes_.data()) + kTail;
  last_byte_ = size_ + kTail - sizeof(std::uint64_t);
  return from;
}

}  // namespace spdld::media

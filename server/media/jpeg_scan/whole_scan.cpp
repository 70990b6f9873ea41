// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/whole_scan.h"

#include "media/jpeg_scan/seek_index.h"

namespace spdld::media {
namespace {

// The end of an image.
constexpr std::byte kEndOfImage{0xD9};

}  // namespace

bool WholeScan::begin(std::span<const std::byte> scan) {
  restart();
  if (scan.size() > SeekIndex::kMostBytes) return false;
  bytes_.reset(scan.size(), 1);
  const std::size_t end = bytes_.add(scan, 0, scan.size());
  bits_ = (end - bytes_.stuffed().size()) * 8;
  return end < SeekIndex::kMostBytes && scan.size() - end >= 2 && scan[end + 1] == kEndOfImage;
}

void WholeScan::restart() {
  stuffed_ = 0;
  entries_.clear();
}

bool WholeScan::add_entry(std::uint64_t bit, const std::array<std::int32_t, 3>& dc) {
  const std::uint64_t byte = bit / 8;
  const std::span<const std::uint32_t> stuffed = bytes_.stuffed();
  while (stuffed_ < stuffed.size() && stuffed[stuffed_] < byte) ++stuffed_;
  SeekIndex::Entry entry{.byte = static_cast<std::uint32_t>(byte + stuffed_),
                         .bit = static_cast<std::uint32_t>(bit % 8)};
  for (std::size_t i = 0; i < dc.size(); ++i) {
    if (!SeekIndex::can_tell(dc[i])) return false;
    entry.dc[i] = static_cast<std::int16_t>(dc[i]);
  }
  entries_.push_back(entry.packed());
  return true;
}

}  // namespace spdld::media

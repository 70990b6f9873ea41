// SPDX-License-Identifier: Apache-2.0
#include "media/probe/packet_finder.h"

#include <algorithm>
#include <cstring>

namespace spdld::media {
namespace {

// The longest header of a Matroska block: 255 sizes of laced frames, and what stands before them.
constexpr std::size_t kMostBefore = 1100;
constexpr std::size_t kReadAhead = std::size_t{128} << 10;

}  // namespace

Result<std::span<const std::byte>> PacketFinder::window(std::uint64_t offset, std::size_t wanted) {
  if (offset < begin_ || offset + wanted > begin_ + filled_) {
    // Bytes that were read already are kept, and those behind them are read.
    std::size_t kept = 0;
    const std::size_t capacity = std::max(wanted, kReadAhead);
    std::vector<std::byte> grown;
    if (bytes_.size() < capacity) grown.resize(capacity);
    std::vector<std::byte>& to = grown.empty() ? bytes_ : grown;
    if (offset >= begin_ && offset < begin_ + filled_) {
      kept = begin_ + filled_ - offset;
      std::memmove(to.data(), bytes_.data() + (offset - begin_), kept);
    }
    if (!grown.empty()) bytes_.swap(grown);
    begin_ = offset;
    filled_ = kept;
    SPDLD_ASSIGN(const std::size_t count,
                 reader_.read(begin_ + filled_, std::span(bytes_).subspan(filled_)));
    filled_ += count;
  }
  return std::span<const std::byte>(bytes_).subspan(
      offset - begin_, std::min<std::size_t>(wanted, begin_ + filled_ - offset));
}

Result<std::optional<std::uint64_t>> PacketFinder::find(std::uint64_t near,
                                                        std::span<const std::byte> bytes) {
  if (bytes.empty()) return std::optional(near);
  SPDLD_ASSIGN(const std::span<const std::byte> seen, window(near, bytes.size() + kMostBefore));
  for (std::size_t at = 0; at + bytes.size() <= seen.size(); ++at) {
    if (seen[at] == bytes[0] && std::memcmp(seen.data() + at, bytes.data(), bytes.size()) == 0)
      return std::optional(near + at);
  }
  return std::optional<std::uint64_t>();
}

}  // namespace spdld::media

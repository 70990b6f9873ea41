// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_pieces.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::source {
namespace {

using Extents = std::array<Extent, ClipsSpec::kMostStacked>;

// The one at `at` takes in the next one.
void join(Extents& extents, std::size_t& count, std::size_t at) {
  extents[at].end = std::max(extents[at].end, extents[at + 1].end);
  std::copy(extents.begin() + static_cast<std::ptrdiff_t>(at) + 2,
            extents.begin() + static_cast<std::ptrdiff_t>(count),
            extents.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  --count;
}

std::uint64_t between(const Extents& extents, std::size_t at) {
  return extents[at + 1].begin - std::min(extents[at].end, extents[at + 1].begin);
}

}  // namespace

ClipPieces ClipPieces::whole() {
  ClipPieces pieces = one(0, 0);
  pieces.whole_ = true;
  return pieces;
}

ClipPieces ClipPieces::one(std::uint64_t begin, std::uint64_t end) {
  ClipPieces pieces;
  pieces.pieces_[0] = {.offset = begin, .size_bytes = end - begin};
  pieces.count_ = 1;
  return pieces;
}

ClipPieces ClipPieces::of(std::span<MediaPacket> packets, std::span<const std::size_t> runs,
                          std::size_t most) {
  SPDLD_CHECK(!runs.empty() && runs.size() <= ClipsSpec::kMostStacked && most > 0);
  Extents extents;
  std::size_t count = 0;
  std::size_t at = 0;
  for (const std::size_t run : runs) {
    Extent& extent = extents[count++];
    extent = {.begin = packets[at].offset, .end = packets[at].offset};
    for (const std::size_t end = at + run; at < end; ++at) {
      extent.begin = std::min(extent.begin, packets[at].offset);
      extent.end = std::max(extent.end, packets[at].offset + packets[at].size_bytes);
    }
  }
  std::sort(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(count),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i + 1 < count;) {
    if (between(extents, i) <= kMostBetween)
      join(extents, count, i);
    else
      ++i;
  }
  while (count > std::min(most, kMost)) {
    std::size_t nearest = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (between(extents, i) < between(extents, nearest)) nearest = i;
    }
    join(extents, count, nearest);
  }
  ClipPieces made;
  std::array<std::uint64_t, kMost> before{};  // bytes of the clip that stand before each
  for (std::size_t i = 0; i < count; ++i) {
    made.pieces_[i] = {.offset = extents[i].begin, .size_bytes = extents[i].end - extents[i].begin};
    if (i + 1 < count) before[i + 1] = before[i] + made.pieces_[i].size_bytes;
  }
  made.count_ = count;
  for (MediaPacket& packet : packets) {
    std::size_t i = count - 1;
    while (packet.offset < extents[i].begin) --i;
    packet.offset = packet.offset - extents[i].begin + before[i];
  }
  return made;
}

}  // namespace spdld::source

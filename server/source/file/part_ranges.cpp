// SPDX-License-Identifier: Apache-2.0
#include "source/file/part_ranges.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace spdld::source {
void add_pieces(std::span<const Piece> pieces, const FileRange& file, std::size_t most_ranges,
                ItemBytes& out, std::optional<std::size_t> alone) {
  SPDLD_CHECK(pieces.size() <= kMostPieces && most_ranges > 0);
  std::array<std::size_t, kMostPieces> order{};
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].size_bytes > 0) order[wanted++] = i;
  }
  std::sort(order.begin(), order.begin() + wanted,
            [&](std::size_t a, std::size_t b) { return pieces[a].offset < pieces[b].offset; });

  std::array<std::size_t, kMostPieces> range_of{};
  std::array<Extent, kMostPieces> ranges;
  std::size_t count = 0;
  for (std::size_t at = 0; at < wanted; ++at) {
    const Piece& piece = pieces[order[at]];
    const std::uint64_t end = piece.offset + piece.size_bytes;
    const bool apart = order[at] == alone || (at > 0 && order[at - 1] == alone) ||
                       (count > 0 && piece.offset > ranges[count - 1].end &&
                        piece.offset - ranges[count - 1].end > kMostBetween);
    if (count == 0 || (apart && count < most_ranges))
      ranges[count++] = {.begin = piece.offset, .end = piece.offset};
    Extent& range = ranges[count - 1];
    range.end = std::max(range.end, end);
    range_of[order[at]] = count - 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    FileRange& range = out.add_range();
    range = file;
    range.offset = ranges[i].begin;
    range.size_bytes = ranges[i].end - ranges[i].begin;
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.size_bytes == 0) {
      out.add_place({.size_bytes = 0});
    } else {
      out.add_place({.range = range_of[i],
                     .offset = piece.offset - ranges[range_of[i]].begin,
                     .size_bytes = piece.size_bytes});
    }
  }
}

}  // namespace spdld::source

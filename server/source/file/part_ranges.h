// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "source/item/item_bytes.h"

namespace spdld::source {

// Unwanted bytes between two pieces are read with them up to this many: one read more costs as
// much.
inline constexpr std::uint64_t kMostBetween = std::uint64_t{64} << 10;

// A piece of a file that one request of an item is about; empty: it brings no bytes.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

// Bytes [begin, end) of a file.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Lays `pieces` of the one file that `file` tells of out in `out`, which was begun: neighbours
// share a range, but for the piece of the number `alone`, and there are at most `most_ranges`, none
// where all pieces are empty. At most kMostPieces. Where there would be too many ranges, `alone`
// shares one, too.
inline constexpr std::size_t kMostPieces = 64;
void add_pieces(std::span<const Piece> pieces, const FileRange& file, std::size_t most_ranges,
                ItemBytes& out, std::optional<std::size_t> alone = std::nullopt);

}  // namespace spdld::source

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "op/clips_spec.h"
#include "op/media.h"
#include "source/file/part_ranges.h"
#include "source/file/range_reader.h"

namespace spdld::source {

// The bytes of a part that a clip is made from: pieces that lie one behind the other in the part,
// and without what is between them in the clip. Pieces so near to each other that a source would
// read them as one are one.
class ClipPieces {
 public:
  static constexpr std::size_t kMost = RangeReader::kMostRanges;

  // The whole part.
  static ClipPieces whole();
  static ClipPieces one(std::uint64_t begin, std::uint64_t end);
  // Those that the packets lie in, at most `most` of them, which is at least 1. The packets' places
  // in the part become places in the clip. `runs`: of how many packets each begins with, that
  // follow each other in the file; at most ClipsSpec::kMostStacked.
  static ClipPieces of(std::span<MediaPacket> packets, std::span<const std::size_t> runs,
                       std::size_t most);

  bool is_whole() const { return whole_; }
  std::span<const Piece> pieces() const { return {pieces_.data(), count_}; }

 private:
  std::array<Piece, kMost> pieces_;
  std::size_t count_ = 0;
  bool whole_ = false;
};

}  // namespace spdld::source

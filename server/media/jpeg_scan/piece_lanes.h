// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "media/jpeg_scan/lane_kernels.h"
#include "media/jpeg_scan/scan_bytes.h"
#include "media/jpeg_scan/scan_tables.h"

namespace spdld::media {

// Decodes pieces of a sound baseline scan, one in each lane of AVX-512's vectors. A piece that is
// at its end makes room for another one. Used by one thread.
class PieceLanes {
 public:
  static constexpr std::size_t kLanes = kScanLanes;
  // Coefficients that a lane may write behind its end.
  static constexpr std::size_t kOverrun = 2 * kBlock;
  // The first so many are where lanes write what is of no use.
  static constexpr std::size_t kSpare = kBlock;

  // Some MCUs of a row.
  struct Piece {
    std::uint32_t bit = 0;  // of ScanBytes, where they begin
    // Of the blocks: coefficients [first, end) are theirs, and are zeros before.
    std::uint32_t first = 0;
    std::uint32_t end = 0;
  };

  static bool are_available() { return has_scan_lanes(); }

  // The tables, the bytes and the blocks must live as long as pieces are decoded. All lanes are
  // free then.
  void open(const ScanTables& tables, const ScanBytes& bytes, std::int16_t* blocks);
  // A bit for each lane.
  std::uint32_t free() const { return ~busy_ & ((1u << kLanes) - 1); }
  void start(std::size_t lane, const Piece& piece);
  // Decodes until lanes are at their end, one at least, and returns which; they are free then.
  // Some must be busy.
  std::uint32_t run();

 private:
  LaneTables tables_;
  std::int16_t* blocks_ = nullptr;
  PieceState state_;
  std::uint32_t busy_ = 0;
};

}  // namespace spdld::media

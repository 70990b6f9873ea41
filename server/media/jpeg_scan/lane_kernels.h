// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "media/jpeg_scan/huffman_table.h"
#include "media/jpeg_scan/scan_bytes.h"
#include "media/jpeg_scan/scan_tables.h"

// The loops of PieceLanes and ScanSurvey: a vector's lanes each read a baseline scan from a place
// of their own. For AVX-512 alone; other instruction sets lack scatters.
namespace spdld::media {

inline constexpr std::size_t kScanLanes = 16;

// Whether this machine has the instructions. The loops need them.
bool has_scan_lanes();

// Which table each place in an MCU has, and where the bits are: the same for all lanes.
struct LaneTables {
  const HuffmanTable::Entry* entries = nullptr;  // of a table, from which the others are counted
  const ScanBytes* bytes = nullptr;
  // Of each place in an MCU where a look may be: at a block's first coefficient, or, at the odd
  // ones, at those after it.
  std::array<const HuffmanTable*, 2 * kMostMcuBlocks> tables{};
  std::array<std::uint32_t, kScanLanes> first_entries{};
  std::array<std::uint32_t, kScanLanes> behind{};     // the place when the block has ended
  std::array<std::uint32_t, kScanLanes> component{};  // one of 3 bits; none at odd places

  void open(const ScanTables& from, const ScanBytes& scan);
  HuffmanTable::Symbol symbol_at(std::uint64_t bits, std::uint32_t place) const {
    return tables[place]->find(static_cast<std::uint32_t>(bits >> 48));
  }
};

// Where the lanes of PieceLanes are.
struct PieceState {
  std::array<std::uint32_t, kScanLanes> bit{};    // of the scan's bytes
  std::array<std::uint32_t, kScanLanes> place{};  // in an MCU
  std::array<std::uint32_t, kScanLanes> to{};     // the next coefficient, in bytes of the blocks
  std::array<std::uint32_t, kScanLanes> end{};    // likewise
};

// Decodes the pieces of `busy`, a bit for each lane, until one of them is at its end, and returns
// which are.
std::uint32_t run_pieces(const LaneTables& tables, std::int16_t* blocks, std::uint32_t busy,
                         PieceState& state);
// Decodes one symbol of a lane, whatever it is (piece_lanes.cpp).
void step_slowly(const LaneTables& tables, std::int16_t* blocks, std::size_t lane,
                 PieceState& state);

// A survey has the lanes of two vectors, of which one computes while the other waits for its
// tables.
inline constexpr std::size_t kSurveyLanes = 2 * kScanLanes;

// Where the lanes of ScanSurvey are.
struct SurveyState {
  using Numbers = std::array<std::uint32_t, kSurveyLanes>;

  Numbers bit{};
  Numbers place{};
  Numbers k{};  // the next coefficient of its block
  // Of each component: the sum of all differences between first coefficients.
  std::array<Numbers, 3> dc{};
};

// MCUs that have ended, in the order in which lanes came to their ends.
struct SurveyLog {
  static constexpr std::size_t kRoom = 96;
  using Numbers = std::array<std::uint32_t, kRoom>;

  std::size_t size = 0;
  Numbers lane{};
  Numbers bit{};
  std::array<Numbers, 3> dc{};
};

// Reads on in all lanes of `busy`, until the log has no room for another look of all, or until
// there are lanes whose next symbol does not fit a look, or does not exist: returns these.
std::uint32_t run_survey(const LaneTables& tables, std::uint32_t busy, SurveyState& state,
                         SurveyLog& log);

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "media/huffman_table.h"
#include "media/scan_bytes.h"
#include "media/scan_tables.h"

// The loop of PieceLanes, for AVX-512 alone: other instruction sets lack scatters.
namespace spdld::media {

// Pieces that are decoded at once.
inline constexpr std::size_t kPieceLanes = 16;

// What all of them are decoded by.
struct PieceTables {
  const HuffmanTable::Entry* entries = nullptr;  // of a table, from which the others are counted
  const ScanBytes* bytes = nullptr;
  std::int16_t* blocks = nullptr;
  // Of each place in an MCU where a look may be: at a block's first coefficient, or, at the odd
  // ones, at those after it.
  std::array<const HuffmanTable*, 2 * kMostMcuBlocks> tables{};
  std::array<std::uint32_t, kPieceLanes> first_entries{};
  std::array<std::uint32_t, kPieceLanes> behind{};  // the place when the block has ended
};

// Where each of them is.
struct PieceState {
  std::array<std::uint32_t, kPieceLanes> bit{};    // of the scan's bytes
  std::array<std::uint32_t, kPieceLanes> to{};     // the next coefficient, in bytes of the blocks
  std::array<std::uint32_t, kPieceLanes> end{};    // likewise
  std::array<std::uint32_t, kPieceLanes> place{};  // in an MCU
};

// Whether this machine has the instructions.
bool has_piece_kernel();

// Decodes the pieces of `busy`, a bit for each lane, until one of them is at its end, and returns
// which are. Needs has_piece_kernel().
std::uint32_t run_pieces(const PieceTables& tables, std::uint32_t busy, PieceState& state);

// Decodes one symbol of a lane, whatever it is.
void step_slowly(const PieceTables& tables, std::size_t lane, PieceState& state);

}  // namespace spdld::media

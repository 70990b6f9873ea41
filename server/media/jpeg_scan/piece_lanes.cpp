// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/piece_lanes.h"

#include "base/check.h"

namespace spdld::media {
namespace {

constexpr std::uint32_t kCoefficientBytes = sizeof(std::int16_t);

}  // namespace

void step_slowly(const LaneTables& tables, std::int16_t* blocks, std::size_t lane,
                 PieceState& state) {
  std::uint32_t& to = state.to[lane];
  std::uint32_t& place = state.place[lane];
  const std::uint64_t bits = tables.bytes->load(state.bit[lane]);
  const HuffmanTable::Symbol symbol = tables.symbol_at(bits, place);
  state.bit[lane] += static_cast<std::uint32_t>(symbol.length + symbol.size);
  const std::uint32_t at = to / kCoefficientBytes + static_cast<std::uint32_t>(symbol.run);
  blocks[at] = static_cast<std::int16_t>(symbol.value_in(bits));
  const auto behind = static_cast<std::uint32_t>((to / kCoefficientBytes / kBlock + 1) * kBlock);
  // A code that does not exist ends the block, too: it has no length, and this must come to an end.
  const bool ends = symbol.ends_block || symbol.length == 0 || at + 1 >= behind;
  to = (ends ? behind : at + 1) * kCoefficientBytes;
  place = ends ? tables.behind[place] : place | 1;
}

void PieceLanes::open(const ScanTables& tables, const ScanBytes& bytes, std::int16_t* blocks) {
  busy_ = 0;
  tables_.open(tables, bytes);
  blocks_ = blocks;
}

void PieceLanes::start(std::size_t lane, const Piece& piece) {
  SPDLD_CHECK((free() >> lane & 1) != 0 && piece.first < piece.end);
  busy_ |= 1u << lane;
  state_.bit[lane] = piece.bit;
  state_.to[lane] = piece.first * kCoefficientBytes;
  state_.end[lane] = piece.end * kCoefficientBytes;
  state_.place[lane] = 0;
}

std::uint32_t PieceLanes::run() {
  SPDLD_CHECK(busy_ != 0);
  const std::uint32_t done = run_pieces(tables_, blocks_, busy_, state_);
  busy_ &= ~done;
  return done;
}

}  // namespace spdld::media

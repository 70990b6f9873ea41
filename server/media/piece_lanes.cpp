// SPDX-License-Identifier: Apache-2.0
#include "media/piece_lanes.h"

#include "base/check.h"

namespace spdld::media {

void PieceLanes::open(const ScanTables& tables, const ScanBytes& bytes, std::int16_t* blocks) {
  busy_ = 0;
  tables_.open(tables, bytes);
  blocks_ = blocks;
}

void PieceLanes::start(std::size_t lane, const Piece& piece) {
  SPDLD_CHECK((free() >> lane & 1) != 0 && piece.first < piece.end);
  busy_ |= 1u << lane;
  state_.bit[lane] = piece.bit;
  state_.to[lane] = piece.first * static_cast<std::uint32_t>(sizeof(std::int16_t));
  state_.end[lane] = piece.end * static_cast<std::uint32_t>(sizeof(std::int16_t));
  state_.place[lane] = 0;
}

std::uint32_t PieceLanes::run() {
  SPDLD_CHECK(busy_ != 0);
  const std::uint32_t done = run_pieces(tables_, blocks_, busy_, state_);
  busy_ &= ~done;
  return done;
}

}  // namespace spdld::media

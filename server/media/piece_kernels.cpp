// SPDX-License-Identifier: Apache-2.0
#include "media/piece_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/piece_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "media/piece_kernels-inl.h"

#if HWY_ONCE
namespace spdld::media {
namespace {

HWY_EXPORT(has_piece_kernel);
HWY_EXPORT(run_pieces);

constexpr std::uint32_t kBytes = sizeof(std::int16_t);

}  // namespace

bool has_piece_kernel() { return HWY_DYNAMIC_DISPATCH(has_piece_kernel)(); }

std::uint32_t run_pieces(const PieceTables& tables, std::uint32_t busy, PieceState& state) {
  return HWY_DYNAMIC_DISPATCH(run_pieces)(tables, busy, state);
}

void step_slowly(const PieceTables& tables, std::size_t lane, PieceState& state) {
  std::uint32_t& to = state.to[lane];
  std::uint32_t& place = state.place[lane];
  const std::uint64_t bits = tables.bytes->load(state.bit[lane]);
  const HuffmanTable::Symbol symbol =
      tables.tables[place]->find(static_cast<std::uint32_t>(bits >> 48));
  state.bit[lane] += static_cast<std::uint32_t>(symbol.length + symbol.size);
  const std::uint32_t at = to / kBytes + static_cast<std::uint32_t>(symbol.run);
  tables.blocks[at] =
      static_cast<std::int16_t>(HuffmanTable::value_of(bits << symbol.length, symbol.size));
  const auto behind = static_cast<std::uint32_t>((to / kBytes / kBlock + 1) * kBlock);
  // A code that does not exist ends the block, too: it has no length, and this must come to an end.
  const bool ends = symbol.ends_block || symbol.length == 0 || at + 1 >= behind;
  to = (ends ? behind : at + 1) * kBytes;
  place = ends ? tables.behind[place] : place | 1;
}

}  // namespace spdld::media
#endif  // HWY_ONCE

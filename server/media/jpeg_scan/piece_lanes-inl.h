// SPDX-License-Identifier: Apache-2.0
// Included by lane_kernels.cpp once for each instruction set.
#if defined(SPDLD_MEDIA_PIECE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_PIECE_LANES_INL_H_
#undef SPDLD_MEDIA_PIECE_LANES_INL_H_
#else
#define SPDLD_MEDIA_PIECE_LANES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "media/jpeg_scan/lane_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3

struct PiecePosition {
  Numbers bit, place, to;

  HWY_INLINE void load(const PieceState& state) {
    const Tag d;
    bit = hn::LoadU(d, state.bit.data());
    place = hn::LoadU(d, state.place.data());
    to = hn::LoadU(d, state.to.data());
  }
  HWY_INLINE void store(PieceState& state) const {
    const Tag d;
    hn::StoreU(bit, d, state.bit.data());
    hn::StoreU(place, d, state.place.data());
    hn::StoreU(to, d, state.to.data());
  }
};

// Coefficients that were found, in 32 bits each. A scatter holds up all loads behind it until its
// addresses are known, so it comes behind the loads of the next look.
struct FoundCoefficients {
  Numbers first_at, first, second_at, second;

  HWY_INLINE void write(std::int16_t* blocks) const {
    const Tag d;
    auto* const base = reinterpret_cast<std::uint32_t*>(blocks);
    hn::ScatterOffset(first, d, base, hn::BitCast(Signed(), first_at));
    hn::ScatterOffset(second, d, base, hn::BitCast(Signed(), second_at));
  }
  HWY_INLINE void clear() { first_at = first = second_at = second = hn::Zero(Tag()); }
};

std::uint32_t run_pieces(const LaneTables& tables, std::int16_t* blocks, std::uint32_t busy_bits,
                         PieceState& state) {
  constexpr int kBytes = sizeof(std::int16_t);  // of a coefficient
  const Tag d;
  const Looks looks(tables);
  const Numbers behind = hn::LoadU(d, tables.behind.data());
  const Numbers end = hn::LoadU(d, state.end.data());
  const Lanes busy = lanes_of(busy_bits);
  const Numbers in_block = all_of(kBlock * kBytes - 1);

  PiecePosition at;
  at.load(state);
  FoundCoefficients found;
  found.clear();
  for (;;) {
    const Looks::Look look = looks.at(at.bit, at.place);
    const Entries& entries = look.found;
    found.write(blocks);

    const Numbers first_at = hn::Add(at.to, entries.run<kBytes>());
    const Numbers behind_first = hn::Add(first_at, all_of(kBytes));
    // See RowLanes::step(): where the code is longer than the table's, and at a block's last
    // coefficient, the look is of no use.
    const Lanes is_useless =
        hn::And(busy, hn::Or(is_zero(entries.length()), is_zero(hn::And(behind_first, in_block))));
    const Lanes takes = hn::AndNot(is_useless, busy);

    const Lanes fits = entries.fits();
    const Numbers first = hn::And(look.first(fits), all_of(0xFFFF));
    Numbers next = hn::IfThenElse(fits, hn::Add(at.to, entries.advance<kBytes>()), behind_first);

    // A second coefficient is written with what precedes it, which is the first or a zero. So no
    // scatter writes behind its block.
    const Lanes has_second = hn::And(hn::And(takes, fits), entries.has_second());
    const Numbers second_at = hn::Sub(next, all_of(2 * kBytes));
    found.first_at = hn::IfThenElseZero(takes, first_at);
    found.first = first;
    found.second_at = hn::IfThenElseZero(has_second, second_at);
    found.second = hn::Or(hn::ShiftLeft<16>(entries.second()),
                          hn::IfThenElseZero(hn::Eq(second_at, first_at), first));

    const Numbers block = hn::AndNot(in_block, next);
    const Lanes ends = hn::Gt(block, at.to);
    const Numbers place =
        hn::IfThenElse(ends, of_place(behind, at.place), hn::Or(at.place, all_of(1)));
    next = hn::IfThenElse(ends, block, next);
    at.bit = hn::IfThenElse(takes, hn::Add(at.bit, look.used(fits)), at.bit);
    at.place = hn::IfThenElse(takes, place, at.place);
    at.to = hn::IfThenElse(takes, next, at.to);

    Lanes is_done = hn::AndNot(hn::Gt(end, at.to), busy);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Or(is_useless, is_done)))) continue;
    found.write(blocks);
    found.clear();
    at.store(state);
    if (!hn::AllFalse(d, is_useless)) {
      for (std::uint32_t left = bits_of(is_useless); left != 0; left &= left - 1)
        step_slowly(tables, blocks, static_cast<std::size_t>(std::countr_zero(left)), state);
      at.load(state);
      is_done = hn::AndNot(hn::Gt(end, at.to), busy);
    }
    if (!hn::AllFalse(d, is_done)) return bits_of(is_done);
  }
}

#endif  // AVX3

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_PIECE_LANES_INL_H_

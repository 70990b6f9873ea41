// SPDX-License-Identifier: Apache-2.0
// Included by piece_kernels.cpp once for each instruction set.
#if defined(SPDLD_MEDIA_PIECE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_PIECE_KERNELS_INL_H_
#undef SPDLD_MEDIA_PIECE_KERNELS_INL_H_
#else
#define SPDLD_MEDIA_PIECE_KERNELS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "media/piece_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::FixedTag<std::uint32_t, kPieceLanes>;
using Numbers = hn::Vec<Tag>;
using Lanes = hn::Mask<Tag>;

HWY_INLINE Numbers all_of(std::uint32_t value) { return hn::Set(Tag(), value); }

HWY_INLINE std::uint32_t bits_of(Lanes lanes) {
  std::uint32_t bits = 0;
  hn::StoreMaskBits(Tag(), lanes, reinterpret_cast<std::uint8_t*>(&bits));
  return bits;
}

// The entries' fields, in the number that the four bytes of one are.
constexpr std::uint32_t kLength = 0xFF;
constexpr std::uint32_t kAdvance = 0xFF00;
constexpr int kAdvanceAt = 8, kRunAt = 16, kSecondAt = 20, kFirstAt = 24;
constexpr std::uint32_t kSecond = 0xFu << kSecondAt;

// Places in blocks are in bytes.
constexpr std::uint32_t kCoefficient = sizeof(std::int16_t);
constexpr std::uint32_t kInBlock = kBlock * kCoefficient - 1;

struct Position {
  Numbers bit, to, place;

  HWY_INLINE void load(const PieceState& state) {
    const Tag d;
    bit = hn::LoadU(d, state.bit.data());
    to = hn::LoadU(d, state.to.data());
    place = hn::LoadU(d, state.place.data());
  }
  HWY_INLINE void store(PieceState& state) const {
    const Tag d;
    hn::StoreU(bit, d, state.bit.data());
    hn::StoreU(to, d, state.to.data());
    hn::StoreU(place, d, state.place.data());
  }
};

// Coefficients that were found, in 32 bits each. A scatter holds up all loads behind it until its
// addresses are known, so it comes behind the loads of the next look.
struct Found {
  Numbers first_at, first, second_at, second;

  HWY_INLINE void write(std::int16_t* blocks) const {
    const Tag d;
    const hn::RebindToSigned<Tag> offset;
    auto* const base = reinterpret_cast<std::uint32_t*>(blocks);
    hn::ScatterOffset(first, d, base, hn::BitCast(offset, first_at));
    hn::ScatterOffset(second, d, base, hn::BitCast(offset, second_at));
  }
  HWY_INLINE void clear() { first_at = first = second_at = second = hn::Zero(Tag()); }
};

// The number that the highest `size` of these bits stand for, where size is not 0.
HWY_INLINE Numbers value_of(Numbers bits, Numbers size) {
  const Tag d;
  const hn::RebindToSigned<Tag> sign;
  const Numbers rest = hn::Sub(all_of(32), size);
  const Numbers is_positive = hn::BitCast(d, hn::ShiftRight<31>(hn::BitCast(sign, bits)));
  const Numbers lowest = hn::AndNot(is_positive, hn::Shr(all_of(~0u), rest));
  return hn::Sub(hn::Shr(bits, rest), lowest);
}

std::uint32_t run_pieces(const PieceTables& tables, std::uint32_t busy_bits, PieceState& state) {
  const Tag d;
  const hn::RebindToSigned<Tag> sign;
  const hn::Repartition<std::uint8_t, Tag> bytes;
  alignas(16) static constexpr std::uint8_t kSwapped[16] = {3,  2,  1, 0, 7,  6,  5,  4,
                                                            11, 10, 9, 8, 15, 14, 13, 12};
  const auto swapped = hn::LoadDup128(bytes, kSwapped);
  const auto* const entries = reinterpret_cast<const std::uint32_t*>(tables.entries);
  const auto* const scan = reinterpret_cast<const std::uint32_t*>(tables.bytes->data());
  const Numbers last_byte = all_of(static_cast<std::uint32_t>(tables.bytes->last_byte()));
  const Numbers first_entries = hn::LoadU(d, tables.first_entries.data());
  const Numbers behind = hn::LoadU(d, tables.behind.data());
  const Numbers end = hn::LoadU(d, state.end.data());
  const Lanes busy = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&busy_bits));
  const Numbers one = all_of(1);
  const Numbers in_block = all_of(kInBlock);

  Position at;
  at.load(state);
  Found found;
  found.clear();
  for (;;) {
    const Numbers byte = hn::Min(hn::ShiftRight<3>(at.bit), last_byte);
    const Numbers loaded = hn::GatherOffset(d, scan, hn::BitCast(sign, byte));
    const Numbers bits =
        hn::Shl(hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(bytes, loaded), swapped)),
                hn::And(at.bit, all_of(7)));  // of which 25 are there
    const Numbers index =
        hn::Add(hn::ShiftRight<32 - HuffmanTable::kBits>(bits),
                hn::TableLookupLanes(first_entries, hn::IndicesFromVec(d, at.place)));
    const Numbers entry = hn::GatherIndex(d, entries, hn::BitCast(sign, index));
    found.write(tables.blocks);

    const Numbers length = hn::And(entry, all_of(kLength));
    // In bytes, like all places.
    const Numbers advance = hn::And(hn::ShiftRight<kAdvanceAt - 1>(entry), all_of(kLength * 2));
    const Numbers run = hn::And(hn::ShiftRight<kRunAt - 1>(entry), all_of(15 * kCoefficient));
    const Numbers first_at = hn::Add(at.to, run);
    const Numbers behind_first = hn::Add(first_at, all_of(kCoefficient));
    // See RowLanes::step(): where the code is longer than the table's, and at a block's last
    // coefficient, the look is of no use.
    const Lanes is_useless = hn::And(
        busy,
        hn::Or(hn::Eq(length, hn::Zero(d)), hn::Eq(hn::And(behind_first, in_block), hn::Zero(d))));
    const Lanes takes = hn::AndNot(is_useless, busy);

    // A coefficient that does not fit its entry follows its code.
    const Lanes fits = hn::Ne(hn::And(entry, all_of(kAdvance)), hn::Zero(d));
    const Numbers size = hn::And(hn::ShiftRight<kSecondAt>(entry), all_of(15));
    const Numbers first = hn::And(
        hn::IfThenElse(fits, hn::BitCast(d, hn::ShiftRight<kFirstAt>(hn::BitCast(sign, entry))),
                       value_of(hn::Shl(bits, length), size)),
        all_of(0xFFFF));
    Numbers next = hn::IfThenElse(fits, hn::Add(at.to, advance), behind_first);
    const Numbers used = hn::IfThenElse(fits, length, hn::Add(length, size));

    // A second coefficient is written with what precedes it, which is the first or a zero. So no
    // scatter writes behind its block.
    const Lanes has_second =
        hn::And(hn::And(takes, fits), hn::Ne(hn::And(entry, all_of(kSecond)), hn::Zero(d)));
    const Numbers second_at = hn::Sub(next, all_of(2 * kCoefficient));
    const Numbers second = hn::ShiftLeft<16>(hn::BitCast(
        d, hn::ShiftRight<28>(hn::BitCast(sign, hn::ShiftLeft<28 - kSecondAt>(entry)))));
    found.first_at = hn::IfThenElseZero(takes, first_at);
    found.first = first;
    found.second_at = hn::IfThenElseZero(has_second, second_at);
    found.second = hn::Or(second, hn::IfThenElseZero(hn::Eq(second_at, first_at), first));

    const Numbers block = hn::AndNot(in_block, next);
    const Lanes ends = hn::Gt(block, at.to);
    const Numbers place = hn::IfThenElse(
        ends, hn::TableLookupLanes(behind, hn::IndicesFromVec(d, at.place)), hn::Or(at.place, one));
    next = hn::IfThenElse(ends, block, next);
    at.bit = hn::IfThenElse(takes, hn::Add(at.bit, used), at.bit);
    at.to = hn::IfThenElse(takes, next, at.to);
    at.place = hn::IfThenElse(takes, place, at.place);

    Lanes is_done = hn::AndNot(hn::Gt(end, at.to), busy);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Or(is_useless, is_done)))) continue;
    found.write(tables.blocks);
    found.clear();
    at.store(state);
    if (!hn::AllFalse(d, is_useless)) {
      for (std::uint32_t left = bits_of(is_useless); left != 0; left &= left - 1)
        step_slowly(tables, static_cast<std::size_t>(std::countr_zero(left)), state);
      at.load(state);
      is_done = hn::AndNot(hn::Gt(end, at.to), busy);
    }
    if (hn::AllFalse(d, is_done)) continue;
    return bits_of(is_done);
  }
}

bool has_piece_kernel() { return true; }

#else

bool has_piece_kernel() { return false; }

// Never called.
std::uint32_t run_pieces(const PieceTables&, std::uint32_t busy, PieceState&) {
  SPDLD_CHECK(has_piece_kernel());
  return busy;
}

#endif  // AVX3

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_PIECE_KERNELS_INL_H_

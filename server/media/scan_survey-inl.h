// SPDX-License-Identifier: Apache-2.0
// Included by lane_kernels.cpp once for each instruction set.
#if defined(SPDLD_MEDIA_SCAN_SURVEY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPDLD_MEDIA_SCAN_SURVEY_INL_H_
#undef SPDLD_MEDIA_SCAN_SURVEY_INL_H_
#else
#define SPDLD_MEDIA_SCAN_SURVEY_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "media/lane_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3

// Appends those of these lanes, of whose number is `count`.
HWY_INLINE void log_lanes(Numbers numbers, Lanes lanes, std::uint32_t* to) {
  hn::StoreU(hn::Compress(numbers, lanes), Tag(), to);
}

std::uint32_t run_survey(const LaneTables& tables, std::uint32_t busy_bits, SurveyState& state,
                         SurveyLog& log) {
  const Tag d;
  const Looks looks(tables);
  const Numbers behind = hn::LoadU(d, tables.behind.data());
  const Numbers components = hn::LoadU(d, tables.component.data());
  const Lanes busy = lanes_of(busy_bits);
  const Numbers lane_numbers = hn::Iota(d, 0);

  Numbers bit = hn::LoadU(d, state.bit.data());
  Numbers place = hn::LoadU(d, state.place.data());
  Numbers k = hn::LoadU(d, state.k.data());
  Numbers dc0 = hn::LoadU(d, state.dc[0].data());
  Numbers dc1 = hn::LoadU(d, state.dc[1].data());
  Numbers dc2 = hn::LoadU(d, state.dc[2].data());
  std::size_t logged = log.size;
  Lanes is_odd = lanes_of(0);
  while (logged <= SurveyLog::kRoom - kScanLanes && hn::AllFalse(d, is_odd)) {
    const Looks::Look look = looks.at(bit, place);
    const Entries& entries = look.found;
    const Numbers length = entries.length();
    const Numbers advance = entries.advance<1>();
    const Numbers first_at = hn::Add(k, entries.run<1>());
    const Lanes fits = entries.fits();
    const Numbers size = entries.size();
    const Numbers next = hn::IfThenElse(fits, hn::Add(k, advance), hn::Add(first_at, all_of(1)));
    const Lanes is_behind = hn::Gt(next, all_of(kBlock));
    // A coefficient behind its block; of a block's last one the look is of no use.
    is_odd = hn::And(
        busy, hn::Or(hn::Or(is_zero(length), hn::Gt(first_at, all_of(kBlock - 2))),
                     hn::And(is_behind, hn::Gt(all_of(HuffmanTable::Entry::kToEnd), advance))));
    const Lanes takes = hn::AndNot(is_odd, busy);
    const Lanes ends = hn::And(takes, hn::Gt(next, all_of(kBlock - 1)));

    const Numbers component = hn::IfThenElseZero(takes, of_place(components, place));
    const Numbers difference =
        hn::IfThenElse(fits, entries.first(), value_of(hn::Shl(look.bits, length), size));
    const auto added = [&](Numbers dc, std::uint32_t which) HWY_ATTR {
      return hn::IfThenElse(hn::TestBit(component, all_of(which)), hn::Add(dc, difference), dc);
    };
    dc0 = added(dc0, 1);
    dc1 = added(dc1, 2);
    dc2 = added(dc2, 4);

    const Numbers used = hn::IfThenElse(fits, length, hn::Add(length, size));
    bit = hn::IfThenElse(takes, hn::Add(bit, used), bit);
    const Numbers next_place =
        hn::IfThenElse(ends, of_place(behind, place), hn::Or(place, all_of(1)));
    place = hn::IfThenElse(takes, next_place, place);
    k = hn::IfThenElse(ends, hn::Zero(d), hn::IfThenElse(takes, next, k));

    const Lanes ends_mcu = hn::And(ends, is_zero(place));
    log_lanes(lane_numbers, ends_mcu, log.lane.data() + logged);
    log_lanes(bit, ends_mcu, log.bit.data() + logged);
    log_lanes(dc0, ends_mcu, log.dc[0].data() + logged);
    log_lanes(dc1, ends_mcu, log.dc[1].data() + logged);
    log_lanes(dc2, ends_mcu, log.dc[2].data() + logged);
    logged += hn::CountTrue(d, ends_mcu);
  }
  hn::StoreU(bit, d, state.bit.data());
  hn::StoreU(place, d, state.place.data());
  hn::StoreU(k, d, state.k.data());
  hn::StoreU(dc0, d, state.dc[0].data());
  hn::StoreU(dc1, d, state.dc[1].data());
  hn::StoreU(dc2, d, state.dc[2].data());
  log.size = logged;
  return bits_of(is_odd);
}

#endif  // AVX3

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_SCAN_SURVEY_INL_H_

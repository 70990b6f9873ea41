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

#include "media/jpeg_scan/lane_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3

// By place in an MCU (LaneTables).
struct SurveyTables {
  Numbers behind, components;
};

// The lanes of one vector.
struct SurveyVector {
  std::size_t first_lane;
  Lanes busy;
  Numbers bit, place, k, dc0, dc1, dc2;

  HWY_INLINE void load(const SurveyState& state, std::uint32_t busy_bits, std::size_t first) {
    const Tag d;
    first_lane = first;
    busy = lanes_of(busy_bits >> first);
    bit = hn::LoadU(d, state.bit.data() + first);
    place = hn::LoadU(d, state.place.data() + first);
    k = hn::LoadU(d, state.k.data() + first);
    dc0 = hn::LoadU(d, state.dc[0].data() + first);
    dc1 = hn::LoadU(d, state.dc[1].data() + first);
    dc2 = hn::LoadU(d, state.dc[2].data() + first);
  }
  HWY_INLINE void store(SurveyState& state) const {
    const Tag d;
    hn::StoreU(bit, d, state.bit.data() + first_lane);
    hn::StoreU(place, d, state.place.data() + first_lane);
    hn::StoreU(k, d, state.k.data() + first_lane);
    hn::StoreU(dc0, d, state.dc[0].data() + first_lane);
    hn::StoreU(dc1, d, state.dc[1].data() + first_lane);
    hn::StoreU(dc2, d, state.dc[2].data() + first_lane);
  }

  // Takes what a look has found. Returns the lanes that it does not fit, which stay as they are.
  HWY_INLINE Lanes take(const Looks::Look& look, const SurveyTables& tables, SurveyLog& log) {
    const Tag d;
    const Entries& entries = look.found;
    const Numbers advance = entries.advance<1>();
    const Numbers first_at = hn::Add(k, entries.run<1>());
    const Lanes fits = entries.fits();
    const Numbers next = hn::IfThenElse(fits, hn::Add(k, advance), hn::Add(first_at, all_of(1)));
    // A code that is longer than the table's, a first coefficient that is its block's last or
    // behind it, a second one behind it.
    const Lanes is_odd = hn::And(
        busy, hn::Or(hn::Or(is_zero(entries.length()), hn::Gt(first_at, all_of(kBlock - 2))),
                     hn::And(hn::Gt(next, all_of(kBlock)),
                             hn::Gt(all_of(HuffmanTable::Entry::kToEnd), advance))));
    const Lanes takes = hn::AndNot(is_odd, busy);
    const Lanes ends = hn::And(takes, hn::Gt(next, all_of(kBlock - 1)));

    const Numbers component = hn::IfThenElseZero(takes, of_place(tables.components, place));
    const Numbers change = look.first(fits);
    dc0 = hn::IfThenElse(hn::TestBit(component, all_of(1)), hn::Add(dc0, change), dc0);
    dc1 = hn::IfThenElse(hn::TestBit(component, all_of(2)), hn::Add(dc1, change), dc1);
    dc2 = hn::IfThenElse(hn::TestBit(component, all_of(4)), hn::Add(dc2, change), dc2);

    bit = hn::IfThenElse(takes, hn::Add(bit, look.used(fits)), bit);
    const Numbers next_place =
        hn::IfThenElse(ends, of_place(tables.behind, place), hn::Or(place, all_of(1)));
    place = hn::IfThenElse(takes, next_place, place);
    k = hn::IfThenElse(ends, hn::Zero(d), hn::IfThenElse(takes, next, k));

    const Lanes ends_mcu = hn::And(ends, is_zero(place));
    const auto add = [&](Numbers numbers, SurveyLog::Numbers& to) HWY_ATTR {
      hn::StoreU(hn::Compress(numbers, ends_mcu), d, to.data() + log.size);
    };
    add(hn::Iota(d, static_cast<std::uint32_t>(first_lane)), log.lane);
    add(bit, log.bit);
    add(dc0, log.dc[0]);
    add(dc1, log.dc[1]);
    add(dc2, log.dc[2]);
    log.size += hn::CountTrue(d, ends_mcu);
    return is_odd;
  }
};

// With kBoth, one vector computes while the other waits for its tables.
template <bool kBoth>
HWY_INLINE std::uint32_t survey(const LaneTables& tables, std::uint32_t busy, SurveyState& state,
                                SurveyLog& log) {
  const Tag d;
  const Looks looks(tables);
  const SurveyTables constants{hn::LoadU(d, tables.behind.data()),
                               hn::LoadU(d, tables.component.data())};
  SurveyVector a, b;
  a.load(state, busy, 0);
  if constexpr (kBoth) b.load(state, busy, kScanLanes);
  std::uint32_t odd = 0;
  while (odd == 0 && log.size <= SurveyLog::kRoom - kSurveyLanes) {
    const Looks::Look look = looks.at(a.bit, a.place);
    if constexpr (kBoth) {
      const Looks::Look other = looks.at(b.bit, b.place);
      odd = bits_of(b.take(other, constants, log)) << kScanLanes;
    }
    odd |= bits_of(a.take(look, constants, log));
  }
  a.store(state);
  if constexpr (kBoth) b.store(state);
  return odd;
}

std::uint32_t run_survey(const LaneTables& tables, std::uint32_t busy, SurveyState& state,
                         SurveyLog& log) {
  return busy >> kScanLanes == 0 ? survey<false>(tables, busy, state, log)
                                 : survey<true>(tables, busy, state, log);
}

#endif  // AVX3

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#endif  // SPDLD_MEDIA_SCAN_SURVEY_INL_H_

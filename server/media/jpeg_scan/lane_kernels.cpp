// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/lane_kernels.h"

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/jpeg_scan/lane_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "media/jpeg_scan/piece_lanes-inl.h"
#include "media/jpeg_scan/scan_survey-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spdld::media {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3

bool has_scan_lanes() { return true; }

#else

bool has_scan_lanes() { return false; }

// Never called.
std::uint32_t run_pieces(const LaneTables&, std::int16_t*, std::uint32_t busy, PieceState&) {
  SPDLD_CHECK(has_scan_lanes());
  return busy;
}
std::uint32_t run_survey(const LaneTables&, std::uint32_t busy, SurveyState&, SurveyLog&) {
  SPDLD_CHECK(has_scan_lanes());
  return busy;
}

#endif  // AVX3

}  // namespace HWY_NAMESPACE
}  // namespace spdld::media
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spdld::media {
namespace {

HWY_EXPORT(has_scan_lanes);
HWY_EXPORT(run_pieces);
HWY_EXPORT(run_survey);

}  // namespace

bool has_scan_lanes() { return HWY_DYNAMIC_DISPATCH(has_scan_lanes)(); }

void LaneTables::open(const ScanTables& from, const ScanBytes& scan) {
  entries = from.block(0).dc->entries();
  bytes = &scan;
  const std::size_t count = from.mcu_blocks();
  for (std::size_t place = 0; place < 2 * count; ++place) {
    const ScanTables::Block& block = from.block(place / 2);
    const bool is_dc = place % 2 == 0;
    tables[place] = is_dc ? block.dc : block.ac;
    first_entries[place] = static_cast<std::uint32_t>(tables[place]->entries() - entries);
    behind[place] = static_cast<std::uint32_t>(2 * ((place / 2 + 1) % count));
    component[place] = is_dc ? 1u << block.component : 0;
  }
}

std::uint32_t run_pieces(const LaneTables& tables, std::int16_t* blocks, std::uint32_t busy,
                         PieceState& state) {
  return HWY_DYNAMIC_DISPATCH(run_pieces)(tables, blocks, busy, state);
}

std::uint32_t run_survey(const LaneTables& tables, std::uint32_t busy, SurveyState& state,
                         SurveyLog& log) {
  return HWY_DYNAMIC_DISPATCH(run_survey)(tables, busy, state, log);
}

}  // namespace spdld::media
#endif  // HWY_ONCE

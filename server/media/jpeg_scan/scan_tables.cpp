// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/scan_tables.h"

namespace spdld::media {

void ScanTables::build(const BaselineFrame& frame) {
  mcus_across_ = frame.mcus_across();
  mcus_down_ = frame.mcus_down();
  mcu_blocks_ = static_cast<std::size_t>(frame.mcu_blocks());
  std::size_t block = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(frame.component_count); ++i) {
    const BaselineFrame::Component& component = frame.components[i];
    // The two of chroma mostly have the same codes, and so have files of one encoder.
    const bool is_twin =
        i == 2 && component.dc == frame.components[1].dc && component.ac == frame.components[1].ac;
    const std::size_t table = is_twin ? 1 : i;
    if (!is_twin) {
      dc_[i].build(component.dc, HuffmanTable::Kind::kDc);
      ac_[i].build(component.ac, HuffmanTable::Kind::kAc);
    }
    for (int n = 0; n < component.columns * component.rows; ++n)
      blocks_[block++] = {.dc = &dc_[table], .ac = &ac_[table], .component = i};
  }
}

}  // namespace spdld::media

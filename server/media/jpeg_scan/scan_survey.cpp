// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/scan_survey.h"

#include <algorithm>
#include <bit>

#include "media/jpeg_scan/seek_index.h"

namespace spdld::media {

std::span<const std::uint64_t> ScanSurvey::run(const ScanTables& tables, WholeScan& scan,
                                               int step) {
  if (scan.bits() < 8 * kLeastBytes) return {};
  scan.restart();
  scan_ = &scan;
  tables_.open(tables, scan.bytes());
  begin_lanes();
  room_ = most_begins(static_cast<std::uint64_t>(tables.mcus_across()) *
                      static_cast<std::uint64_t>(tables.mcus_down()));
  if (!read() || !add_entries(tables, step)) return {};
  return scan.entries();
}

void ScanSurvey::begin_lanes() {
  state_ = {};
  log_.size = 0;
  busy_ = 0;
  count_ = std::min<std::size_t>(kSurveyLanes, scan_->bits() / (8 * kLaneBytes));
  for (std::size_t i = 0; i < count_; ++i) {
    Lane& lane = lanes_[i];
    busy_ |= 1u << i;
    state_.bit[i] = static_cast<std::uint32_t>(scan_->bits() * i / count_);
    lane.end = static_cast<std::uint32_t>(scan_->bits() * (i + 1) / count_);
    lane.next = i + 1;
    lane.begins.clear();
    lane.joined_at.reset();
  }
  // The first one begins where an MCU does.
  lanes_[0].begins.push_back({});
  lanes_[0].joined_at = 0;
}

bool ScanSurvey::read() {
  while (busy_ != 0) {
    std::uint32_t odd = run_survey(tables_, busy_, state_, log_);
    take_log();
    if (room_ == 0) return false;
    for (odd &= busy_; odd != 0; odd &= odd - 1) {
      if (!read_symbol(static_cast<std::size_t>(std::countr_zero(odd)))) return false;
    }
  }
  return true;
}

void ScanSurvey::take_log() {
  for (std::size_t i = 0; i < log_.size; ++i)
    add(log_.lane[i], {.bit = log_.bit[i], .dc = {log_.dc[0][i], log_.dc[1][i], log_.dc[2][i]}});
  log_.size = 0;
}

bool ScanSurvey::read_symbol(std::size_t i) {
  std::uint32_t& place = state_.place[i];
  std::uint32_t& k = state_.k[i];
  const std::uint64_t bits = scan_->bytes().load(state_.bit[i]);
  const HuffmanTable::Symbol symbol = tables_.symbol_at(bits, place);
  k += static_cast<std::uint32_t>(symbol.run);
  const bool exists = symbol.length != 0 && (symbol.ends_block || k < kBlock);
  if (exists) {
    for (std::size_t c = 0; c < 3; ++c) {
      if ((tables_.component[place] >> c & 1) != 0)
        state_.dc[c][i] += static_cast<std::uint32_t>(symbol.value_in(bits));
    }
    state_.bit[i] += static_cast<std::uint32_t>(symbol.length + symbol.size);
  } else if (state_.bit[i] + 8 > scan_->bits()) {
    stop(i);  // what follows is padding, or add_entries() finds MCUs missing
    return true;
  } else {
    if (lanes_[i].joined_at) return false;
    lanes_[i].begins.clear();
    ++state_.bit[i];
  }
  if (exists && !symbol.ends_block && k + 1 < kBlock) {
    ++k;
    place |= 1;
    return true;
  }
  k = 0;
  place = tables_.behind[place];
  if (place == 0) add(i, {state_.bit[i], {state_.dc[0][i], state_.dc[1][i], state_.dc[2][i]}});
  return true;
}

void ScanSurvey::add(std::size_t i, const Begin& begin) {
  // It may have logged more than one before it was stopped.
  if ((busy_ >> i & 1) == 0 || room_ == 0) return;
  --room_;
  Lane& lane = lanes_[i];
  lane.begins.push_back(begin);
  while (lane.next < count_) {
    if (begin.bit < lane.end) return;
    Lane& next = lanes_[lane.next];
    const auto same = std::ranges::lower_bound(next.begins, begin.bit, {}, &Begin::bit);
    if (same != next.begins.end() && same->bit == begin.bit) {
      next.joined_at = static_cast<std::size_t>(same - next.begins.begin());
      return stop(i);
    }
    if (begin.bit < next.end) return;
    // It has read the next one's part, too, and is to join the lane behind. Lanes between are
    // stopped, so that one of them has joined that lane does not count.
    stop(lane.next);
    lane.end = next.end;
    if (++lane.next == count_) break;
    lanes_[lane.next].joined_at.reset();
  }
  if (begin.bit >= lane.end) stop(i);
}

bool ScanSurvey::add_entries(const ScanTables& tables, int step) {
  const int across = tables.mcus_across();
  const int count = across * tables.mcus_down();
  int mcu = 0;
  int column = 0;
  std::array<std::uint32_t, 3> before{};  // what a lane's sums lack
  for (std::size_t i = 0; i < count_; i = lanes_[i].next) {
    std::span<const Begin> begins = std::span(lanes_[i].begins).subspan(*lanes_[i].joined_at);
    const Begin& last = begins.back();
    for (std::size_t c = 0; c < 3; ++c) before[c] -= begins.front().dc[c];
    if (lanes_[i].next < count_) {
      // All rests on this: at the same bit, before an MCU, two lanes are in the same state.
      const Lane& next = lanes_[lanes_[i].next];
      if (!next.joined_at || next.begins[*next.joined_at].bit != last.bit) return false;
      begins = begins.first(begins.size() - 1);
    }
    for (const Begin& begin : begins) {
      std::array<std::int32_t, 3> dc;
      for (std::size_t c = 0; c < 3; ++c)
        dc[c] = static_cast<std::int32_t>(before[c] + begin.dc[c]);
      if (mcu == count) return scan_->ends_at(begin.bit) && scan_->add_entry(begin.bit, dc);
      if (!std::ranges::all_of(dc, SeekIndex::can_tell)) return false;
      if (column % step == 0) scan_->add_entry(begin.bit, dc);
      ++mcu;
      if (++column == across) column = 0;
    }
    for (std::size_t c = 0; c < 3; ++c) before[c] += last.dc[c];
  }
  return false;
}

}  // namespace spdld::media

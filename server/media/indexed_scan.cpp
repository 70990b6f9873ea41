// SPDX-License-Identifier: Apache-2.0
#include "media/indexed_scan.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::media {
namespace {

// Symbols that a lane decodes between two looks at whether it is at its end.
constexpr int kSteps = HuffmanTable::kLooks;
// As much as a lane writes behind its end by then: blocks that it has begun, and zeros ahead.
constexpr std::size_t kOverrun = (kSteps + 3) * kBlock;

}  // namespace

void IndexedScan::open(const ScanTables& tables, std::span<const std::byte> scan) {
  scan_ = scan;
  tables_ = &tables;
  const std::size_t blocks = tables.mcu_blocks();
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t next = (i + 1) % blocks;
    Place& here = places_[i];
    here.tables = &tables.block(i);
    here.ac = reinterpret_cast<std::uintptr_t>(here.tables->ac->entries());
    here.change = reinterpret_cast<std::uintptr_t>(tables.block(next).dc->entries()) - here.ac;
    here.step = (static_cast<std::ptrdiff_t>(next) - static_cast<std::ptrdiff_t>(i)) *
                static_cast<std::ptrdiff_t>(sizeof(Place));
  }
}

IndexedScan::Lane IndexedScan::lane_at(std::uint64_t bit, std::size_t to) const {
  return {
      .at = bit, .to = to, .place = places_.data(), .entries = places_[0].tables->dc->entries()};
}

// The lengths of kSteps entries do not overflow into the bits above them.
__attribute__((always_inline)) inline void IndexedScan::settle(Lane& lane) {
  static_assert(kSteps * HuffmanTable::kBits < 64);
  lane.at += lane.used & 63;
  lane.used = 0;
}

__attribute__((always_inline)) inline IndexedScan::Lane IndexedScan::refilled(Lane lane) const {
  settle(lane);
  lane.bits = bytes_.load(lane.at);
  return lane;
}

// Takes a lane's fields and not the lane, whose address would keep the caller's out of registers.
__attribute__((noinline, cold)) IndexedScan::Lane IndexedScan::slow_step(
    std::uint64_t bit, std::size_t to, const Place& place, const std::uint32_t* entries) {
  Lane lane{.bits = bytes_.load(bit), .at = bit, .to = to, .place = &place};
  const bool is_dc = entries == place.tables->dc->entries();
  const HuffmanTable& table = is_dc ? *place.tables->dc : *place.tables->ac;
  const HuffmanTable::Symbol symbol = table.find(static_cast<std::uint32_t>(lane.bits >> 48));
  const std::int32_t value = HuffmanTable::value_of(lane.bits << symbol.length, symbol.size);
  lane.at += static_cast<std::uint64_t>(symbol.length + symbol.size);
  lane.bits = bytes_.load(lane.at);
  const std::size_t at = lane.to + static_cast<std::size_t>(symbol.run);
  blocks_[at] = static_cast<std::int16_t>(value);
  const std::size_t next = at + 1;
  // A code that does not exist ends the block, too: it has no length, and this must come to an end.
  const bool ends = symbol.ends_block || symbol.length == 0 || ((next ^ lane.to) & kBlock) != 0;
  lane.to = ends ? (lane.to / kBlock + 1) * kBlock : next;
  lane.entries = reinterpret_cast<const std::uint32_t*>(place.ac + (ends ? place.change : 0));
  if (ends) lane.place = &place + place.step / static_cast<std::ptrdiff_t>(sizeof(Place));
  return lane;
}

// One look at the table: up to two coefficients. Whether the block ends with them is known too late
// for a branch: it decides by masks what the next look is at.
__attribute__((always_inline)) inline IndexedScan::Lane IndexedScan::step(Lane lane) {
  const HuffmanTable::Entry entry(lane.entries[HuffmanTable::index_of(lane.bits)]);
  const std::size_t first = lane.to + entry.run();
  // The second coefficient may be none of this block where the first is its last.
  const bool is_last = ((first + 1) & (kBlock - 1)) == 0;
  std::int16_t* const out = blocks_.data();
  if (__builtin_expect(!entry.fits() || is_last, 0)) {
    settle(lane);
    if (entry.is_empty() || is_last) return slow_step(lane.at, lane.to, *lane.place, lane.entries);
    const std::uint32_t size = entry.size();
    const std::uint64_t rest = bytes_.load(lane.at + entry.length());
    out[first] = static_cast<std::int16_t>(HuffmanTable::value_of(rest, static_cast<int>(size)));
    lane.at += entry.length() + size;
    lane.bits = bytes_.load(lane.at);
    lane.to = first + 1;
    lane.entries = reinterpret_cast<const std::uint32_t*>(lane.place->ac);
    return lane;
  }
  lane.bits <<= entry.length();
  lane.used += entry.word();
  const std::size_t next = lane.to + entry.advance();
  out[next - 1] = entry.second();  // before the first, which may be the same
  out[first] = entry.first();
  const std::uint64_t ends = -(((next ^ lane.to) / kBlock) & 1);  // all ones, or none
  lane.to = next & ~(ends & (kBlock - 1));
  const Place& place = *lane.place;
  lane.entries = reinterpret_cast<const std::uint32_t*>(place.ac + (place.change & ends));
  lane.place = reinterpret_cast<const Place*>(reinterpret_cast<const std::byte*>(lane.place) +
                                              (place.step & static_cast<std::ptrdiff_t>(ends)));
  return lane;
}

void IndexedScan::run(Lane lane, std::size_t end) {
  while (lane.to < end) {
    lane = refilled(lane);
    for (int i = 0; i < kSteps; ++i) lane = step(lane);
  }
}

void IndexedScan::run(Lane a, std::size_t a_end, Lane b, std::size_t b_end) {
  while (a.to < a_end && b.to < b_end) {
    a = refilled(a);
    b = refilled(b);
    for (int i = 0; i < kSteps; ++i) {
      a = step(a);
      b = step(b);
    }
  }
  run(a, a_end);
  run(b, b_end);
}

bool IndexedScan::read(const SeekIndex& index, int row, int rows, const McuSpan& mcus) {
  SPDLD_CHECK(rows >= 1 && rows <= 2 && mcus.first < mcus.end);
  const int first = mcus.first / index.step() * index.step();
  const int behind =
      std::min((mcus.end + index.step() - 1) / index.step() * index.step(), tables_->mcus_across());
  const std::size_t mcu = tables_->mcu_blocks() * kBlock;
  const std::size_t row_coefficients = static_cast<std::size_t>(mcus.end - first) * mcu;
  const std::size_t row_room = row_coefficients + kOverrun;
  blocks_.assign(row_room * static_cast<std::size_t>(rows), 0);

  std::array<std::size_t, 2> ends{};
  std::array<SeekIndex::Entry, 2> begins{};
  std::size_t scan_bytes = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
    begins[i] = index.at(row + static_cast<int>(i), first);
    const SeekIndex::Entry end = index.at(row + static_cast<int>(i), behind);
    ends[i] = std::min<std::size_t>(std::size_t{end.byte} + 2, scan_.size());
    if (begins[i].byte >= ends[i]) return false;
    scan_bytes += ends[i] - begins[i].byte;
  }
  bytes_.reset(scan_bytes, begins.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
    const std::uint64_t bit = std::uint64_t{bytes_.size()} * 8 + begins[i].bit;
    bytes_.add(scan_, begins[i].byte, ends[i]);
    const std::size_t to = i * row_room;
    rows_[i] = {.lane = lane_at(bit, to),
                .end = to + row_coefficients,
                .blocks = blocks_.data() + to + static_cast<std::size_t>(mcus.first - first) * mcu};
  }
  if (rows == 2) {
    run(rows_[0].lane, rows_[0].end, rows_[1].lane, rows_[1].end);
  } else {
    run(rows_[0].lane, rows_[0].end);
  }
  bool agree = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i)
    agree = add_up_dc(index, row + static_cast<int>(i), first, mcus.end,
                      blocks_.data() + i * row_room) &&
            agree;
  return agree;
}

// The first coefficient of each block is told as its difference from the one before it.
bool IndexedScan::add_up_dc(const SeekIndex& index, int row, int first, int end,
                            std::int16_t* blocks) const {
  std::array<std::int16_t, 3> dc = index.at(row, first).dc;
  for (int mcu = first; mcu < end; ++mcu) {
    for (std::size_t i = 0; i < tables_->mcu_blocks(); ++i, blocks += kBlock) {
      std::int16_t& sum = dc[tables_->block(i).component];
      sum = static_cast<std::int16_t>(sum + *blocks);
      *blocks = sum;
    }
  }
  return !index.has(end) || index.at(row, end).dc == dc;
}

}  // namespace spdld::media

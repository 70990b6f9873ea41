// SPDX-License-Identifier: Apache-2.0
#include "media/indexed_scan.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::media {
namespace {

// Looks of a lane at its table, before it sees whether it is at its end.
constexpr int kSteps = HuffmanTable::kLooks;
// As much as a lane may write behind its end by then, in whole blocks.
constexpr std::size_t kOverrun =
    (kSteps * std::size_t{HuffmanTable::Entry::kMostAdvance} / kBlock + 1) * kBlock;
static_assert(kSteps * HuffmanTable::kBits < 64);

// Blocks lie where their size divides the address.
constexpr std::uintptr_t kBlockBytes = kBlock * sizeof(std::int16_t);

std::uintptr_t address_of(const std::int16_t* at) { return reinterpret_cast<std::uintptr_t>(at); }
bool begins_block(const std::int16_t* at) { return address_of(at) % kBlockBytes == 0; }
std::int16_t* begin_of_block(std::int16_t* at) {
  return reinterpret_cast<std::int16_t*>(address_of(at) & ~(kBlockBytes - 1));
}
std::int16_t* behind_block(std::int16_t* at) { return begin_of_block(at) + kBlock; }

}  // namespace

void IndexedScan::open(const ScanTables& tables, std::span<const std::byte> scan) {
  scan_ = scan;
  tables_ = &tables;
  const std::size_t blocks = tables.mcu_blocks();
  for (std::size_t i = 0; i < blocks; ++i) {
    const ScanTables::Block& block = tables.block(i);
    const Place* const behind = &places_[2 * ((i + 1) % blocks)];
    Place& rest = places_[2 * i + 1];
    rest = {block.ac, &rest, behind};
    places_[2 * i] = {block.dc, &rest, behind};
  }
}

IndexedScan::Lane IndexedScan::lane_at(std::uint64_t bit, std::int16_t* to) const {
  return {.at = bit, .to = to, .place = places_.data()};
}

__attribute__((always_inline)) inline IndexedScan::Lane IndexedScan::refilled(std::uint64_t at,
                                                                              Lane lane) const {
  lane.at = at;
  lane.bits = bytes_.load(at) | 1;
  return lane;
}

// Takes a lane's fields and not the lane, whose address would keep the caller's out of registers.
__attribute__((noinline, cold)) IndexedScan::Lane IndexedScan::slow_step(std::uint64_t bit,
                                                                         std::int16_t* to,
                                                                         const Place& place,
                                                                         int least) const {
  const std::uint64_t bits = bytes_.load(bit);
  const HuffmanTable::Symbol symbol =
      place.table->find(static_cast<std::uint32_t>(bits >> 48), least);
  to[symbol.run] =
      static_cast<std::int16_t>(HuffmanTable::value_of(bits << symbol.length, symbol.size));
  // A code that does not exist ends the block, too: it has no length, and this must come to an end.
  const bool ends =
      symbol.ends_block || symbol.length == 0 || to + symbol.run + 1 >= behind_block(to);
  return refilled(bit + static_cast<std::uint64_t>(symbol.length + symbol.size),
                  {.to = ends ? behind_block(to) : to + symbol.run + 1,
                   .place = ends ? place.behind : place.within});
}

// One look at the table: up to two coefficients.
__attribute__((always_inline)) inline IndexedScan::Lane IndexedScan::step(Lane lane) const {
  const Entry& entry = lane.place->table->entries()[HuffmanTable::index_of(lane.bits)];
  const std::uint32_t length = entry.length;
  std::int16_t* const at = lane.to + entry.run();
  // The second coefficient may be none of this block where the first is its last.
  if (__builtin_expect(begins_block(at + 1), 0))
    return slow_step(lane.now(), lane.to, *lane.place, 1);
  if (__builtin_expect(!entry.fits(), 0)) {
    const std::uint64_t bit = lane.now();
    if (entry.is_empty()) return slow_step(bit, lane.to, *lane.place, HuffmanTable::kBits + 1);
    const std::uint64_t rest = bytes_.load(bit + length);
    *at = static_cast<std::int16_t>(HuffmanTable::value_of(rest, entry.size()));
    lane.to = at + 1;
    lane.place = lane.place->within;
    return refilled(bit + length + static_cast<std::uint64_t>(entry.size()), lane);
  }
  lane.bits <<= length;
  std::int16_t* const next = lane.to + entry.advance;
  const std::int16_t first = entry.first();
  next[-1] = entry.second();  // before the first, which may be the same
  *at = first;
  return advanced(lane, next);
}

// Whether the block ends before `next` is known too late for a branch, and compilers make one of a
// plain choice. `place` is written last. Sanitizers see into the plain one alone.
__attribute__((always_inline)) inline IndexedScan::Lane IndexedScan::advanced(Lane lane,
                                                                              std::int16_t* next) {
  const Place* place = lane.place->within;
  std::int16_t* to = begin_of_block(next);
#if defined(__x86_64__) && !defined(SPDLD_SANITIZED)
  asm("cmp %[to], %[old]\n\t"
      "cmovae %[next], %[to]\n\t"
      "cmovb %[behind], %[place]"
      : [to] "+&r"(to), [place] "+r"(place)
      : [old] "r"(lane.to), [next] "r"(next), [behind] "m"(lane.place->behind)
      : "cc");
#else
  if (lane.to < to) {
    place = lane.place->behind;
  } else {
    to = next;
  }
#endif
  lane.to = to;
  lane.place = place;
  return lane;
}

// The lanes are variables of their own: those of an array would not stay in registers.
template <typename... Rows>
__attribute__((always_inline)) inline void IndexedScan::run_together(Rows&... rows) const {
  const auto run = [&](auto... lanes) __attribute__((always_inline)) {
    while (((lanes.to < rows.end) && ...)) {
      ((lanes = refilled(lanes.now(), lanes)), ...);
      for (int i = 0; i < kSteps; ++i) ((lanes = step(lanes)), ...);
    }
    ((rows.lane = lanes), ...);
  };
  run(rows.lane...);
}

__attribute__((always_inline)) inline void IndexedScan::run_lanes(int rows) {
  std::array<Row*, kLanes> going{};
  std::size_t count = 0;
  for (Row& row : std::span(rows_).first(static_cast<std::size_t>(rows))) going[count++] = &row;
  while (count > 0) {
    static_assert(kLanes == 4);
    switch (count) {
      case 1: run_together(*going[0]); break;
      case 2: run_together(*going[0], *going[1]); break;
      case 3: run_together(*going[0], *going[1], *going[2]); break;
      default: run_together(*going[0], *going[1], *going[2], *going[3]);
    }
    std::size_t left = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (going[i]->lane.to < going[i]->end) going[left++] = going[i];
    }
    count = left;
  }
}

#if defined(__x86_64__)
// On Intel's processors a shift by a register is then one operation rather than three.
__attribute__((target("bmi2"))) void IndexedScan::run_with_bmi2(int rows) { run_lanes(rows); }

void IndexedScan::run(int rows) {
  if (__builtin_cpu_supports("bmi2") != 0) {
    run_with_bmi2(rows);
  } else {
    run_lanes(rows);
  }
}
#else
void IndexedScan::run(int rows) { run_lanes(rows); }
#endif

bool IndexedScan::read(const SeekIndex& index, int row, int rows, const McuSpan& mcus) {
  SPDLD_CHECK(rows >= 1 && rows <= kLanes && mcus.first < mcus.end);
  const int first = mcus.first / index.step() * index.step();
  const int behind =
      std::min((mcus.end + index.step() - 1) / index.step() * index.step(), tables_->mcus_across());
  const std::size_t mcu = tables_->mcu_blocks() * kBlock;
  const std::size_t row_coefficients = static_cast<std::size_t>(mcus.end - first) * mcu;
  const std::size_t row_room = row_coefficients + kOverrun;
  blocks_.assign(row_room * static_cast<std::size_t>(rows) + kBlock, 0);
  std::int16_t* const blocks = behind_block(blocks_.data());

  std::array<std::size_t, kLanes> ends{};
  std::array<SeekIndex::Entry, kLanes> begins{};
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
    std::int16_t* const to = blocks + i * row_room;
    rows_[i] = {.lane = lane_at(bit, to),
                .end = to + row_coefficients,
                .blocks = to + static_cast<std::size_t>(mcus.first - first) * mcu};
  }
  run(rows);
  bool agree = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i)
    agree = add_up_dc(index, row + static_cast<int>(i), first, mcus.end, blocks + i * row_room) &&
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

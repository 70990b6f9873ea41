// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/row_lanes.h"

#include <algorithm>

#include "base/check.h"

namespace spdld::media {
namespace {

static_assert(RowLanes::kSteps * HuffmanTable::kBits < 64);

// Blocks lie where their size divides the address.
constexpr std::uintptr_t kBlockBytes = kBlock * sizeof(std::int16_t);

std::uintptr_t address_of(const std::int16_t* at) { return reinterpret_cast<std::uintptr_t>(at); }
bool begins_block(const std::int16_t* at) { return address_of(at) % kBlockBytes == 0; }
std::int16_t* begin_of_block(std::int16_t* at) {
  return reinterpret_cast<std::int16_t*>(address_of(at) & ~(kBlockBytes - 1));
}
std::int16_t* behind_block(std::int16_t* at) { return begin_of_block(at) + kBlock; }

}  // namespace

void RowLanes::open(const ScanTables& tables, const ScanBytes& bytes) {
  bytes_ = &bytes;
  const std::size_t blocks = tables.mcu_blocks();
  for (std::size_t i = 0; i < blocks; ++i) {
    const ScanTables::Block& block = tables.block(i);
    const Place* const behind = &places_[2 * ((i + 1) % blocks)];
    Place& rest = places_[2 * i + 1];
    rest = {block.ac, &rest, behind};
    places_[2 * i] = {block.dc, &rest, behind};
  }
}

__attribute__((always_inline)) inline RowLanes::Lane RowLanes::refilled(std::uint64_t at,
                                                                        Lane lane) const {
  lane.at = at;
  lane.bits = bytes_->load(at) | 1;
  return lane;
}

// Takes a lane's fields and not the lane, whose address would keep the caller's out of registers.
__attribute__((noinline, cold)) RowLanes::Lane RowLanes::slow_step(std::uint64_t bit,
                                                                   std::int16_t* to,
                                                                   const Place& place,
                                                                   int least) const {
  const std::uint64_t bits = bytes_->load(bit);
  const HuffmanTable::Symbol symbol =
      place.table->find(static_cast<std::uint32_t>(bits >> 48), least);
  to[symbol.run] = static_cast<std::int16_t>(symbol.value_in(bits));
  // A code that does not exist ends the block, too: it has no length, and this must come to an end.
  const bool ends =
      symbol.ends_block || symbol.length == 0 || to + symbol.run + 1 >= behind_block(to);
  return refilled(bit + static_cast<std::uint64_t>(symbol.length + symbol.size),
                  {.to = ends ? behind_block(to) : to + symbol.run + 1,
                   .place = ends ? place.behind : place.within});
}

// One look at the table: up to two coefficients.
__attribute__((always_inline)) inline RowLanes::Lane RowLanes::step(Lane lane) const {
  const Entry& entry = lane.place->table->entries()[HuffmanTable::index_of(lane.bits)];
  const std::uint32_t length = entry.length;
  std::int16_t* const at = lane.to + entry.run();
  // The second coefficient may be none of this block where the first is its last.
  if (__builtin_expect(begins_block(at + 1), 0))
    return slow_step(lane.now(), lane.to, *lane.place, 1);
  if (__builtin_expect(!entry.fits(), 0)) {
    const std::uint64_t bit = lane.now();
    if (entry.is_empty()) return slow_step(bit, lane.to, *lane.place, HuffmanTable::kBits + 1);
    const std::uint64_t rest = bytes_->load(bit + length);
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
__attribute__((always_inline)) inline RowLanes::Lane RowLanes::advanced(Lane lane,
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
__attribute__((always_inline)) inline void RowLanes::run_together(Rows&... rows) const {
  const auto run = [&](auto... lanes) __attribute__((always_inline)) {
    while (((lanes.to < rows.end) && ...)) {
      ((lanes = refilled(lanes.now(), lanes)), ...);
      for (int i = 0; i < kSteps; ++i) ((lanes = step(lanes)), ...);
    }
    ((rows.lane = lanes), ...);
  };
  run(rows.lane...);
}

__attribute__((always_inline)) inline void RowLanes::run_all(std::span<Row> rows) const {
  std::array<Row*, kLanes> going{};
  std::size_t count = 0;
  for (Row& row : rows) going[count++] = &row;
  while (count > 0) {
    static_assert(kLanes == 4);
    switch (count) {
      case 1: run_together(*going[0]); break;
      case 2: run_together(*going[0], *going[1]); break;
      case 3: run_together(*going[0], *going[1], *going[2]); break;
      default: run_together(*going[0], *going[1], *going[2], *going[3]);
    }
    const auto end =
        std::remove_if(going.begin(), going.begin() + static_cast<std::ptrdiff_t>(count),
                       [](const Row* row) { return row->lane.to >= row->end; });
    count = static_cast<std::size_t>(end - going.begin());
  }
}

#if defined(__x86_64__)
// On Intel's processors a shift by a register is then one operation rather than three.
__attribute__((target("bmi2"))) void RowLanes::run_with_bmi2(std::span<Row> rows) const {
  run_all(rows);
}
#endif

void RowLanes::run(std::span<const Part> parts) {
  SPDLD_CHECK(parts.size() <= kLanes);
  std::array<Row, kLanes> all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    all[i] = {.lane = {.at = part.bit, .to = part.blocks, .place = places_.data()},
              .end = part.end};
  }
  const std::span<Row> rows = std::span(all).first(parts.size());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("bmi2") != 0) return run_with_bmi2(rows);
#endif
  run_all(rows);
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "media/huffman_table.h"
#include "media/scan_bytes.h"
#include "media/scan_tables.h"
#include "media/seek_index.h"

namespace spdld::media {

// Decodes parts of a baseline scan whose index is there. Used by one thread.
class IndexedScan {
 public:
  IndexedScan() = default;
  IndexedScan(const IndexedScan&) = delete;
  IndexedScan& operator=(const IndexedScan&) = delete;

  // The tables and the scan must live as long as it is read.
  void open(const ScanTables& tables, std::span<const std::byte> scan);

  // Rows of MCUs that are decoded at once, one by each lane.
  static constexpr int kLanes = 4;

  // Decodes MCUs of so many rows at once, 1 to kLanes, from the last place before them that the
  // index has. False: index and scan disagree.
  bool read(const SeekIndex& index, int row, int rows, const McuSpan& mcus);
  // The blocks of the MCUs that read() has given for its row, from 0: MCU by MCU, each component's
  // row by row. They are not yet multiplied by the quantizer, and stay until the next read().
  const std::int16_t* blocks(int row) const { return rows_[static_cast<std::size_t>(row)].blocks; }

 private:
  using Entry = HuffmanTable::Entry;
  // What the next look is at: the first coefficient of one block of an MCU, or what follows it.
  struct Place {
    const Entry* entries = nullptr;
    const Place* within = nullptr;  // after this look, if the block goes on
    const Place* behind = nullptr;  // if it has ended
    const HuffmanTable* table = nullptr;
  };
  // Where the decoding of one row is. Lanes take turns, so that one waits for its table while
  // others compute. Of all that changes with each look, a processor has registers for four of them.
  struct Lane {
    std::uint64_t at = 0;  // in bits of bytes_, when `bits` were loaded
    // What comes next, from the highest bit down. A load gives kLoaded bits and sets the lowest bit
    // of the 64 to 1. Looks shift all of it up, so that the zeros below that 1 count the bits used.
    std::uint64_t bits = 1;
    std::int16_t* to = nullptr;  // of blocks_: the next coefficient
    const Place* place = nullptr;

    // In bits of bytes_: what comes next.
    std::uint64_t now() const { return at + static_cast<unsigned>(__builtin_ctzll(bits)); }
  };
  struct Row {
    Lane lane;
    const std::int16_t* end = nullptr;
    const std::int16_t* blocks = nullptr;

    bool goes_on() const { return lane.to < end; }
  };

  Lane lane_at(std::uint64_t bit, std::int16_t* to) const;
  // Decodes one symbol, whatever it is, whose code has at least so many bits.
  Lane slow_step(std::uint64_t bit, std::int16_t* to, const Place& place, int least) const;
  Lane step(Lane lane) const;
  static Lane advanced(Lane lane, std::int16_t* next);
  Lane refilled(std::uint64_t at, Lane lane) const;
  // All these rows in turns, until one of them is at its end.
  template <typename... Rows>
  void run_together(Rows&... rows) const;
  // Decodes the first so many of rows_, each to its end.
  void run(int rows);
  void run_lanes(int rows);  // compiled into both of the others
#if defined(__x86_64__)
  void run_with_bmi2(int rows);
#endif
  bool add_up_dc(const SeekIndex& index, int row, int first, int end, std::int16_t* blocks) const;

  std::span<const std::byte> scan_;
  const ScanTables* tables_ = nullptr;
  std::array<Place, std::size_t{2} * 6> places_;  // two for each block
  ScanBytes bytes_;
  std::vector<std::int16_t> blocks_;
  std::array<Row, kLanes> rows_;
};

}  // namespace spdld::media

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

  // Decodes MCUs of one or two rows at once, from the last place before them that the index has.
  // False: index and scan disagree.
  bool read(const SeekIndex& index, int row, int rows, const McuSpan& mcus);
  // The blocks of the MCUs that read() has given for its row 0 or 1: MCU by MCU, each component's
  // row by row. They are not yet multiplied by the quantizer, and stay until the next read().
  const std::int16_t* blocks(int row) const { return rows_[static_cast<std::size_t>(row)].blocks; }

 private:
  using Entry = HuffmanTable::Entry;
  // One block of an MCU, and what comes after it.
  struct Place {
    const Entry* ac = nullptr;       // of all its coefficients but the first
    const Entry* next_dc = nullptr;  // of the first one of the next block
    const Place* next = nullptr;
    const ScanTables::Block* tables = nullptr;
  };
  // Where one thread of decoding is. Two of them take turns, so that one waits for its table while
  // the other computes.
  struct Lane {
    std::uint64_t at = 0;  // in bits of bytes_, when `bits` were loaded
    // What comes next, from the highest bit down. A load gives kLoaded bits and sets the lowest bit
    // of the 64 to 1. Looks shift all of it up, so that the zeros below that 1 count the bits used.
    std::uint64_t bits = 1;
    std::int16_t* to = nullptr;  // of blocks_: the next coefficient
    const Place* place = nullptr;
    const Entry* entries = nullptr;

    // In bits of bytes_: what comes next.
    std::uint64_t now() const { return at + static_cast<std::uint64_t>(__builtin_ctzll(bits)); }
  };
  struct Row {
    Lane lane;
    const std::int16_t* end = nullptr;
    const std::int16_t* blocks = nullptr;
  };

  Lane lane_at(std::uint64_t bit, std::int16_t* to) const;
  // Decodes one symbol, whatever it is, whose code has at least so many bits.
  Lane slow_step(std::uint64_t bit, std::int16_t* to, const Place& place, const Entry* entries,
                 int least);
  Lane step(Lane lane);
  static Lane advanced(Lane lane, std::int16_t* next);
  Lane refilled(std::uint64_t at, Lane lane) const;
  // One lane, or two in turns, until they have got to their ends.
  void run_one(Lane lane, const std::int16_t* end);
  void run_two(Lane a, const std::int16_t* a_end, Lane b, const std::int16_t* b_end);
  // Decodes the first one or two of rows_.
  void run(int rows);
  void run_rows(int rows);  // compiled into both of the others
#if defined(__x86_64__)
  void run_with_bmi2(int rows);
#endif
  bool add_up_dc(const SeekIndex& index, int row, int first, int end, std::int16_t* blocks) const;

  std::span<const std::byte> scan_;
  const ScanTables* tables_ = nullptr;
  std::array<Place, 6> places_;
  ScanBytes bytes_;
  std::vector<std::int16_t> blocks_;
  std::array<Row, 2> rows_;
};

}  // namespace spdld::media

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
  // read() decodes up to so many rows of MCUs at once.
  static constexpr int kLanes = 4;

  IndexedScan() = default;
  IndexedScan(const IndexedScan&) = delete;
  IndexedScan& operator=(const IndexedScan&) = delete;

  // The tables and the scan must live as long as it is read.
  void open(const ScanTables& tables, std::span<const std::byte> scan);

  // Decodes these MCUs of `rows` rows from `row` on, from the last place before them that the index
  // has; `rows` is 1 to kLanes. False: index and scan disagree.
  bool read(const SeekIndex& index, int row, int rows, const McuSpan& mcus);
  // The blocks of the MCUs of one of the rows that read() has decoded, counted from 0: MCU by MCU,
  // each component's row by row. They are not yet multiplied by the quantizer, and stay until the
  // next read().
  const std::int16_t* blocks(int row) const { return rows_[static_cast<std::size_t>(row)].blocks; }

 private:
  using Entry = HuffmanTable::Entry;
  // Where in an MCU a lane's next look is: at a block's first coefficient, or at those after it.
  struct Place {
    const HuffmanTable* table = nullptr;  // of the codes there
    const Place* within = nullptr;        // after this look, if the block goes on
    const Place* behind = nullptr;        // if it has ended
  };
  // Where the decoding of one row is. Lanes take turns, so that one waits for its table while
  // others compute. `bits`, `to` and `place` change with each look, and x86-64 has registers for
  // those of four lanes.
  struct Lane {
    std::uint64_t at = 0;  // in bits of bytes_, when `bits` were loaded
    // The scan's next bits, from the highest down. A load gives kLoaded of them, and sets the
    // lowest bit of the 64 to 1. A look shifts away the bits that it has used. As many zeros then
    // stand below that 1 as bits have been used since the load.
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
  };

  Lane lane_at(std::uint64_t bit, std::int16_t* to) const;
  // Decodes one symbol, whatever it is, whose code has at least so many bits.
  Lane slow_step(std::uint64_t bit, std::int16_t* to, const Place& place, int least) const;
  Lane step(Lane lane) const;
  static Lane advanced(Lane lane, std::int16_t* next);
  Lane refilled(std::uint64_t at, Lane lane) const;
  // Decodes all these rows in turns, until one of them is at its end or has gone a little beyond
  // it.
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
  std::array<Place, 2 * kMostMcuBlocks> places_;  // two for each block
  ScanBytes bytes_;
  std::vector<std::int16_t> blocks_;
  std::array<Row, kLanes> rows_;
};

}  // namespace spdld::media

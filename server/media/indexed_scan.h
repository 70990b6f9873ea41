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
  // The tables and the scan must live as long as it is read.
  void open(const ScanTables& tables, std::span<const std::byte> scan);

  // Decodes MCUs of one or two rows at once, from the last place before them that the index has.
  // False: index and scan disagree.
  bool read(const SeekIndex& index, int row, int rows, const McuSpan& mcus);
  // The blocks of the MCUs that read() has given for its row 0 or 1: MCU by MCU, each component's
  // row by row. They are not yet multiplied by the quantizer, and stay until the next read().
  const std::int16_t* blocks(int row) const { return rows_[static_cast<std::size_t>(row)].blocks; }

 private:
  // One block of an MCU, and what comes after it. Its fields are such that a lane goes on to the
  // next block without a branch.
  struct Place {
    std::uintptr_t ac = 0;      // entries of the table for all coefficients but the first
    std::uintptr_t change = 0;  // from those to the entries for the first one of the next block
    std::ptrdiff_t step = 0;    // in bytes, to the next block's Place
    const ScanTables::Block* tables = nullptr;
  };
  // Where one thread of decoding is. Two of them take turns, so that one waits for its table while
  // the other computes.
  struct Lane {
    std::uint64_t bits = 0;  // what comes next, from the highest
    std::uint64_t at = 0;    // in bits of bytes_
    // How many of them have been used since the last load, in its lowest 6 bits: whole entries are
    // added up.
    std::uint64_t used = 0;
    std::size_t to = 0;  // in coefficients of blocks_
    const Place* place = nullptr;
    const std::uint32_t* entries = nullptr;
  };
  struct Row {
    Lane lane;
    std::size_t end = 0;
    const std::int16_t* blocks = nullptr;
  };

  Lane lane_at(std::uint64_t bit, std::size_t to) const;
  // Decodes one symbol, whatever it is.
  Lane slow_step(std::uint64_t bit, std::size_t to, const Place& place,
                 const std::uint32_t* entries);
  Lane step(Lane lane);
  Lane refilled(Lane lane) const;
  static void settle(Lane& lane);
  void run(Lane lane, std::size_t end);
  void run(Lane a, std::size_t a_end, Lane b, std::size_t b_end);
  bool add_up_dc(const SeekIndex& index, int row, int first, int end, std::int16_t* blocks) const;

  std::span<const std::byte> scan_;
  const ScanTables* tables_ = nullptr;
  std::array<Place, 6> places_;
  ScanBytes bytes_;
  std::vector<std::int16_t> blocks_;
  std::array<Row, 2> rows_;
};

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "media/jpeg_scan/huffman_table.h"
#include "media/jpeg_scan/scan_bytes.h"
#include "media/jpeg_scan/scan_tables.h"

namespace spdld::media {

// Decodes some rows of MCUs of a sound baseline scan in turns, so that one waits for its table
// while others compute. Used by one thread.
class RowLanes {
 public:
  static constexpr int kLanes = 4;
  // Looks of a lane at its table, before it sees whether it is at its end.
  static constexpr int kSteps = HuffmanTable::kLooks;
  // As much as a lane may write behind its end by then, in whole blocks.
  static constexpr std::size_t kOverrun =
      (kSteps * std::size_t{HuffmanTable::Entry::kMostAdvance} / kBlock + 1) * kBlock;

  // Some MCUs of a row.
  struct Part {
    std::uint64_t bit = 0;  // of ScanBytes, where they begin
    // Their blocks, which are zeros before. The size of one divides the address.
    std::int16_t* blocks = nullptr;
    const std::int16_t* end = nullptr;
  };

  // The tables and the bytes must live as long as rows are decoded.
  void open(const ScanTables& tables, const ScanBytes& bytes);
  // Decodes up to kLanes of them, each to its end.
  void run(std::span<const Part> parts);

 private:
  using Entry = HuffmanTable::Entry;
  // Where in an MCU a lane's next look is: at a block's first coefficient, or at those after it.
  struct Place {
    const HuffmanTable* table = nullptr;  // of the codes there
    const Place* within = nullptr;        // after this look, if the block goes on
    const Place* behind = nullptr;        // if it has ended
  };
  // Where the decoding of one row is. `bits`, `to` and `place` change with each look, and x86-64
  // has registers for those of four lanes.
  struct Lane {
    std::uint64_t at = 0;  // in bits of bytes_, when `bits` were loaded
    // The scan's next bits, from the highest down. A load gives kLoaded of them, and sets the
    // lowest bit of the 64 to 1. A look shifts away the bits that it has used. As many zeros then
    // stand below that 1 as bits have been used since the load.
    std::uint64_t bits = 1;
    std::int16_t* to = nullptr;  // the next coefficient
    const Place* place = nullptr;

    // In bits of bytes_: what comes next.
    std::uint64_t now() const { return at + static_cast<unsigned>(__builtin_ctzll(bits)); }
  };

  struct Row {
    Lane lane;
    const std::int16_t* end = nullptr;
  };

  // Decodes one symbol, whatever it is, whose code has at least so many bits.
  Lane slow_step(std::uint64_t bit, std::int16_t* to, const Place& place, int least) const;
  Lane step(Lane lane) const;
  static Lane advanced(Lane lane, std::int16_t* next);
  Lane refilled(std::uint64_t at, Lane lane) const;
  // Decodes all these rows in turns, until one of them is at its end or has gone a little beyond
  // it.
  template <typename... Rows>
  void run_together(Rows&... rows) const;
  // Decodes these rows, each to its end.
  void run_all(std::span<Row> rows) const;
#if defined(__x86_64__)
  void run_with_bmi2(std::span<Row> rows) const;
#endif

  const ScanBytes* bytes_ = nullptr;
  std::array<Place, 2 * kMostMcuBlocks> places_;  // two for each block
};

}  // namespace spdld::media

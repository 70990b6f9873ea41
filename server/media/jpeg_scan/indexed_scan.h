// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "media/jpeg_scan/piece_lanes.h"
#include "media/jpeg_scan/row_lanes.h"
#include "media/jpeg_scan/scan_bytes.h"
#include "media/jpeg_scan/scan_tables.h"
#include "media/jpeg_scan/seek_index.h"

namespace spdld::media {

// Decodes parts of a baseline scan whose index is there, row by row. Used by one thread.
class IndexedScan {
 public:
  // How many blocks are in memory at once, at most, where a whole row of MCUs has so many.
  static std::size_t most_blocks(std::size_t row_blocks);

  IndexedScan() = default;
  IndexedScan(const IndexedScan&) = delete;
  IndexedScan& operator=(const IndexedScan&) = delete;

  // The tables and the scan must live as long as it is read.
  void open(const ScanTables& tables, std::span<const std::byte> scan);

  // Begins to decode these MCUs of the rows [row, end), from the last place before them that the
  // index has. It must live until the last of them has come. False: index and scan disagree.
  bool begin(const SeekIndex& index, int row, int end, const McuSpan& mcus);
  // The blocks of the MCUs of the next row: MCU by MCU, each component's row by row. They are not
  // yet multiplied by the quantizer, and stay until the next call. Null: index and scan disagree.
  const std::int16_t* next();

 private:
  // Bytes [begin, end) of scan_.
  struct ScanPart {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  ScanPart part_of(int row) const;
  // Fills bytes_ and bits_. False: the index is of another scan.
  bool load_scan();
  // For the blocks of as many rows as are decoded at once.
  void make_room();
  // Decodes some rows from row_ on, all at once.
  void decode_rows();
  // Decodes all pieces of row_, and some of those behind it.
  void decode_pieces();
  void start_pieces();
  std::size_t slot_at(int row) const { return static_cast<std::size_t>(row) % slots_; }
  // Of blocks_: where the blocks of a row begin.
  std::size_t row_at(int row) const { return kLead + slot_at(row) * row_room_; }
  std::size_t parts_before(int row) const {
    return static_cast<std::size_t>(row - first_row_) * row_parts_;
  }
  // Makes the first coefficients of row_ what they are. False: the index says other ones.
  bool add_up_dc();

  static constexpr std::size_t kLead = PieceLanes::kSpare;

  std::span<const std::byte> scan_;
  const ScanTables* tables_ = nullptr;
  ScanBytes bytes_;

  const SeekIndex* index_ = nullptr;
  McuSpan mcus_;  // of each row; from the index's last entry before those that were asked for
  int skipped_ = 0;
  int first_row_ = 0;
  int row_ = 0;  // the next one
  int end_ = 0;
  int decoded_ = 0;                  // rows before it have been decoded
  std::size_t row_parts_ = 0;        // entries that the index has in mcus_
  std::vector<std::uint32_t> bits_;  // of bytes_: where the parts of all rows begin

  std::size_t slots_ = 0;     // rows that blocks_ has room for
  std::size_t row_room_ = 0;  // coefficients
  std::vector<std::int16_t> memory_;
  std::int16_t* blocks_ = nullptr;

  bool in_pieces_ = false;
  RowLanes row_lanes_;
  PieceLanes piece_lanes_;
  std::size_t next_piece_ = 0;
  std::array<int, PieceLanes::kLanes> lane_rows_{};
  std::vector<std::size_t> undone_;  // pieces of each slot's row
};

}  // namespace spdld::media

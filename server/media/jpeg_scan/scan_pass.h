// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "media/jpeg_scan/scan_bytes.h"
#include "media/jpeg_scan/scan_tables.h"
#include "media/jpeg_scan/whole_scan.h"

namespace spdld::media {

// Reads a baseline scan from its begin, row by row, however damaged it is: says whether it is sound
// in every bit, makes its index, and keeps the coefficients of the MCUs that are asked for. Used by
// one thread.
class ScanPass {
 public:
  // All must live as long as it is read. Entries of its index are `step` MCUs apart (SeekGrid).
  void begin(const ScanTables& tables, WholeScan& scan, int step);

  // Reads the next row of MCUs. False: it is not sound, and neither is what follows.
  bool read_row(const McuSpan& kept);
  // The blocks of the MCUs that were kept of the last row: MCU by MCU, each component's row by row.
  // They are not yet multiplied by the quantizer, and stay until the next call of read_row().
  const std::int16_t* blocks() const { return blocks_.data(); }

  // After the last row: the entries of the index. None: the scan has more in it. They stay until
  // the next call of begin().
  std::span<const std::uint64_t> end();

 private:
  template <bool kKeep>
  bool read_mcu(std::int16_t* block);
  bool read_dc(const HuffmanTable& table, ScanBits& in, std::int32_t& dc);
  template <bool kKeep>
  bool read_rest(const HuffmanTable& table, ScanBits& in, std::int16_t* block);
  // A first coefficient whose code is longer than the table's: takes its bits from in_.
  bool read_long_dc(const HuffmanTable& table, std::int32_t& dc);
  // Of coefficient k. Returns which one follows; 0: the scan is not sound.
  template <bool kKeep>
  std::uint32_t read_symbol(const HuffmanTable& table, int least, std::uint32_t k,
                            std::int16_t* block);
  bool push() { return scan_->add_entry(in_.at(), dc_); }

  const ScanTables* tables_ = nullptr;
  int step_ = 0;
  WholeScan* scan_ = nullptr;
  ScanBits in_;
  std::array<std::int32_t, 3> dc_{};
  std::vector<std::int16_t> blocks_;
};

}  // namespace spdld::media

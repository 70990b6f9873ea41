// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "media/jpeg_scan/baseline_frame.h"
#include "media/jpeg_scan/huffman_table.h"

namespace spdld::media {

// Half-open: MCUs of a row.
struct McuSpan {
  int first = 0;
  int end = 0;

  int count() const { return end - first; }
  bool contains(int column) const { return first <= column && column < end; }
};

// Coefficients of a block, in zigzag order.
inline constexpr std::size_t kBlock = 64;
// Of an MCU: those of 4:2:0.
inline constexpr std::size_t kMostMcuBlocks = 6;

// What a baseline scan is read by: how its MCUs are made of blocks, and the codes of each block.
class ScanTables {
 public:
  struct Block {
    const HuffmanTable* dc = nullptr;  // of the first coefficient
    const HuffmanTable* ac = nullptr;  // of all others
    std::size_t component = 0;
  };

  ScanTables() = default;
  ScanTables(const ScanTables&) = delete;
  ScanTables& operator=(const ScanTables&) = delete;

  void build(const BaselineFrame& frame);

  int mcus_across() const { return mcus_across_; }
  int mcus_down() const { return mcus_down_; }
  std::size_t mcu_blocks() const { return mcu_blocks_; }
  // Of an MCU, in their order.
  const Block& block(std::size_t i) const { return blocks_[i]; }

 private:
  int mcus_across_ = 0;
  int mcus_down_ = 0;
  std::size_t mcu_blocks_ = 0;
  std::array<HuffmanTable, 3> dc_;
  std::array<HuffmanTable, 3> ac_;
  std::array<Block, kMostMcuBlocks> blocks_;
};

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "op/media.h"
#include "source/bytes/run_coding.h"

namespace spdld::source {

// A stream's packets in few bytes: blocks of some hundred packets, each of which can be read
// without those before it and begins with a key packet. A block is
//
//   varint n                packets, not 0
//   varint zigzag           the pts of the first that has one
//   7 × (varint bytes, these)  columns as run_coding.h has them: flags, size, offset from the end
//                           of the packet before it, dts from the one before it, pts from dts,
//                           duration, samples that are cut off
//
// An error says what about the packets cannot be kept.
Result<std::string> packet_table_text(std::span<const MediaPacket> packets);

// Such a text, which outlives this. What is damaged yields fewer packets.
class PacketTable {
 public:
  struct Block {
    std::uint64_t first = 0;  // packet
    std::uint64_t packets = 0;
    std::int64_t time = 0;  // the pts of its first packet
    std::string_view columns;
  };

  PacketTable() = default;
  explicit PacketTable(std::string_view text) : text_(text) {}

  bool empty() const { return text_.empty(); }
  // The block behind `block`; at first a default one. False: there is none.
  bool next(Block& block) const;
  // The last block that begins at `time` or before, or the first one; and the one before that.
  // False: there is no block.
  bool find(std::int64_t time, Block& block, Block& before) const;

 private:
  std::string_view text_;
};

// The packets from a block on, one by one.
class PacketReader {
 public:
  PacketReader(const PacketTable& table, const PacketTable::Block& from)
      : table_(table), block_(from) {
    open();
  }

  // False: there are no more, or what follows is damaged.
  bool next(MediaPacket& packet);
  // The number of the packet that next() has given.
  std::uint64_t number() const { return number_ - 1; }

 private:
  static constexpr std::size_t kColumns = 7;

  bool open();

  const PacketTable& table_;
  PacketTable::Block block_;
  std::uint64_t number_ = 0;
  std::uint64_t left_ = 0;  // of the block
  std::uint64_t end_ = 0;   // of the packet before
  std::int64_t dts_ = 0;
  RunReader columns_[kColumns];
};

}  // namespace spdld::source

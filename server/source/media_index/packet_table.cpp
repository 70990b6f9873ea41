// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/packet_table.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace spdld::source {
namespace {

// Blocks are no smaller, but for the last one.
constexpr std::size_t kLeastBlock = 256;
constexpr std::uint64_t kMostOffset = std::uint64_t{1} << 61;

enum Column : std::size_t { kFlags, kSize, kGap, kDts, kPts, kDuration, kCut, kColumnCount };

constexpr std::uint64_t kKey = 1;
constexpr std::uint64_t kDiscard = 2;
constexpr std::uint64_t kHasCut = 4;

bool is_kept(std::int64_t time) { return time == kNoTime || is_possible_time(time); }

// 0: there is none.
std::uint64_t time_code(std::int64_t time, std::int64_t base) {
  return time == kNoTime ? 0 : zigzag(time - base) + 1;
}
std::int64_t time_of(std::uint64_t code, std::int64_t base) {
  // Unsigned, since what is damaged may go beyond the numbers that there are.
  return code == 0 ? kNoTime
                   : static_cast<std::int64_t>(static_cast<std::uint64_t>(base) +
                                               static_cast<std::uint64_t>(unzigzag(code - 1)));
}

void put_block(std::string& text, std::span<const MediaPacket> packets) {
  std::array<RunWriter, kColumnCount> columns;
  std::uint64_t end = 0;
  std::int64_t dts = 0;
  std::int64_t time = kNoTime;
  for (const MediaPacket& packet : packets) {
    if (time == kNoTime) time = packet.pts;
    const bool cut = packet.skip_samples > 0 || packet.discard_samples > 0;
    columns[kFlags].add((packet.key ? kKey : 0) | (packet.discard ? kDiscard : 0) |
                        (cut ? kHasCut : 0));
    columns[kSize].add(packet.size_bytes);
    columns[kGap].add(zigzag(static_cast<std::int64_t>(packet.offset - end)));
    columns[kDts].add(time_code(packet.dts, dts));
    if (packet.dts != kNoTime) dts = packet.dts;
    columns[kPts].add(time_code(packet.pts, dts));
    columns[kDuration].add(static_cast<std::uint64_t>(packet.duration));
    if (cut) {
      columns[kCut].add(packet.skip_samples);
      columns[kCut].add(packet.discard_samples);
    }
    end = packet.offset + packet.size_bytes;
  }
  put_varint(text, packets.size());
  put_varint(text, zigzag(time == kNoTime ? 0 : time));
  std::string body;
  for (RunWriter& column : columns) {
    const std::string bytes = column.finish();
    put_varint(body, bytes.size());
    body += bytes;
  }
  put_varint(text, body.size());
  text += body;
}

}  // namespace

Result<std::string> packet_table_text(std::span<const MediaPacket> packets) {
  for (const MediaPacket& packet : packets) {
    if (!is_kept(packet.pts) || !is_kept(packet.dts) || packet.duration < 0 ||
        packet.duration > kMostTime || packet.offset > kMostOffset)
      return error(Code::kDataLoss, "a packet stands at a time or place that cannot be right");
  }
  std::string text;
  while (!packets.empty()) {
    std::size_t size = std::min(packets.size(), kLeastBlock);
    while (size < packets.size() && !packets[size].key) ++size;
    put_block(text, packets.first(size));
    packets = packets.subspan(size);
  }
  return text;
}

bool PacketTable::next(Block& block) const {
  const std::size_t begin =
      block.packets == 0
          ? 0
          : static_cast<std::size_t>(block.columns.data() - text_.data()) + block.columns.size();
  std::string_view rest = text_.substr(std::min(begin, text_.size()));
  std::uint64_t packets = 0;
  std::uint64_t time = 0;
  std::uint64_t bytes = 0;
  if (!take_varint(rest, packets) || !take_varint(rest, time) || !take_varint(rest, bytes) ||
      packets == 0 || bytes > rest.size())
    return false;
  block = {.first = block.first + block.packets,
           .packets = packets,
           .time = unzigzag(time),
           .columns = rest.substr(0, bytes)};
  return true;
}

bool PacketTable::find(std::int64_t time, Block& block, Block& before) const {
  Block at;
  if (!next(at)) return false;
  block = before = at;
  Block last = at;
  while (next(at)) {
    if (at.time <= time) {
      block = at;
      before = last;
    }
    last = at;
  }
  return true;
}

bool PacketReader::open() {
  number_ = block_.first;
  left_ = 0;
  end_ = 0;
  dts_ = 0;
  std::string_view rest = block_.columns;
  for (RunReader& column : columns_) {
    std::uint64_t bytes = 0;
    if (!take_varint(rest, bytes) || bytes > rest.size()) return false;
    column = RunReader(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
  left_ = block_.packets;
  return true;
}

bool PacketReader::next(MediaPacket& packet) {
  if (left_ == 0 && (!table_.next(block_) || !open())) return false;
  static_assert(kColumnCount == kColumns);
  std::array<std::uint64_t, kCut> values{};
  for (std::size_t column = 0; column < kCut; ++column) {
    if (columns_[column].next(values[column])) continue;
    left_ = 0;
    return false;
  }
  std::uint64_t skip = 0;
  std::uint64_t discard = 0;
  const bool cut = (values[kFlags] & kHasCut) != 0;
  if (cut && (!columns_[kCut].next(skip) || !columns_[kCut].next(discard))) {
    left_ = 0;
    return false;
  }
  packet.key = (values[kFlags] & kKey) != 0;
  packet.discard = (values[kFlags] & kDiscard) != 0;
  packet.size_bytes = static_cast<std::uint32_t>(values[kSize]);
  packet.offset = end_ + static_cast<std::uint64_t>(unzigzag(values[kGap]));
  packet.dts = time_of(values[kDts], dts_);
  if (packet.dts != kNoTime) dts_ = packet.dts;
  packet.pts = time_of(values[kPts], dts_);
  packet.duration = static_cast<std::int64_t>(values[kDuration]);
  packet.skip_samples = static_cast<std::uint32_t>(skip);
  packet.discard_samples = static_cast<std::uint32_t>(discard);
  packet.gap = false;
  end_ = packet.offset + packet.size_bytes;
  --left_;
  ++number_;
  return true;
}

}  // namespace spdld::source

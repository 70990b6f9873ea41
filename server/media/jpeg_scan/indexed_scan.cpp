// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/indexed_scan.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace spdld::media {
namespace {

constexpr std::size_t kOverrun = std::max(RowLanes::kOverrun, PieceLanes::kOverrun);

// Bytes from an entry on that bits before it may lie in: one, and a zero that is left out.
constexpr std::size_t kBehindEntry = 2;
// Rows that have enough pieces for all lanes while the last pieces of one of them are awaited.
constexpr std::size_t kWanted = 2 * PieceLanes::kLanes;
// More rows of pieces than of RowLanes only as long as they are small.
constexpr std::size_t kMostBlocks = 4096;

}  // namespace

std::size_t IndexedScan::most_blocks(std::size_t row_blocks) {
  const std::size_t least = RowLanes::kLanes * row_blocks;
  if (!PieceLanes::are_available()) return least;
  return std::min((kWanted + 1) * row_blocks, std::max(kMostBlocks, least));
}

void IndexedScan::open(const ScanTables& tables, std::span<const std::byte> scan) {
  scan_ = scan;
  tables_ = &tables;
  row_lanes_.open(tables, bytes_);
}

bool IndexedScan::begin(const SeekIndex& index, int row, int end, const McuSpan& mcus) {
  SPDLD_CHECK(row < end && mcus.first < mcus.end);
  index_ = &index;
  mcus_ = {mcus.first / index.step() * index.step(), mcus.end};
  skipped_ = mcus.first - mcus_.first;
  first_row_ = row_ = decoded_ = row;
  end_ = end;
  row_parts_ = static_cast<std::size_t>((mcus_.count() + index.step() - 1) / index.step());
  if (!load_scan()) return false;
  make_room();
  return true;
}

IndexedScan::ScanPart IndexedScan::part_of(int row) const {
  const int behind =
      std::min(mcus_.first + static_cast<int>(row_parts_) * index_->step(), tables_->mcus_across());
  const std::size_t end = std::size_t{index_->at(row, behind).byte} + kBehindEntry;
  return {.begin = index_->at(row, mcus_.first).byte, .end = std::min(end, scan_.size())};
}

bool IndexedScan::load_scan() {
  std::size_t scan_bytes = 0;
  for (int row = first_row_; row < end_; ++row) {
    const ScanPart part = part_of(row);
    if (part.begin >= part.end) return false;
    scan_bytes += part.end - part.begin;
  }
  bytes_.reset(scan_bytes, static_cast<std::size_t>(end_ - first_row_));
  bits_.clear();
  for (int row = first_row_; row < end_; ++row) {
    const ScanPart part = part_of(row);
    const std::size_t begin = bytes_.size();
    const std::size_t before = bytes_.stuffed().size();
    if (bytes_.add(scan_, part.begin, part.end) + kBehindEntry < part.end) return false;
    const std::span<const std::uint32_t> stuffed = bytes_.stuffed().subspan(before);
    std::size_t left_out = 0;  // zeros before an entry
    for (std::size_t i = 0; i < row_parts_; ++i) {
      const SeekIndex::Entry entry =
          index_->at(row, mcus_.first + static_cast<int>(i) * index_->step());
      const std::size_t byte = begin + entry.byte - part.begin;
      while (left_out < stuffed.size() && stuffed[left_out] < byte - left_out) ++left_out;
      bits_.push_back(static_cast<std::uint32_t>((byte - left_out) * 8 + entry.bit));
    }
  }
  return true;
}

void IndexedScan::make_room() {
  const auto rows = static_cast<std::size_t>(end_ - first_row_);
  const std::size_t row_blocks = static_cast<std::size_t>(mcus_.count()) * tables_->mcu_blocks();
  row_room_ = row_blocks * kBlock + kOverrun;
  slots_ = std::min(
      {most_blocks(row_blocks) / row_blocks, (kWanted + row_parts_ - 1) / row_parts_ + 1, rows});
  in_pieces_ = PieceLanes::are_available() && slots_ * row_parts_ >= PieceLanes::kLanes;
  if (!in_pieces_) slots_ = std::min(std::size_t{RowLanes::kLanes}, rows);
  memory_.resize(std::max(memory_.size(), kLead + slots_ * row_room_ + kBlock));
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(std::int16_t);
  blocks_ = memory_.data() + (kBlock - address % kBlock) % kBlock;
  if (!in_pieces_) return;
  piece_lanes_.open(*tables_, bytes_, blocks_);
  next_piece_ = 0;
  undone_.assign(slots_, row_parts_);
}

const std::int16_t* IndexedScan::next() {
  SPDLD_CHECK(row_ < end_);
  if (in_pieces_) {
    decode_pieces();
  } else if (row_ == decoded_) {
    decode_rows();
  }
  if (!add_up_dc()) return nullptr;
  return blocks_ + row_at(row_++) +
         static_cast<std::size_t>(skipped_) * tables_->mcu_blocks() * kBlock;
}

void IndexedScan::decode_rows() {
  // Rather 3 and 3 at once than 4 and 2.
  const int turns = (end_ - row_ + RowLanes::kLanes - 1) / RowLanes::kLanes;
  const int count = (end_ - row_ + turns - 1) / turns;
  std::array<RowLanes::Part, RowLanes::kLanes> parts;
  std::size_t i = 0;
  for (decoded_ = row_; decoded_ < row_ + count; ++decoded_, ++i) {
    std::int16_t* const to = blocks_ + row_at(decoded_);
    std::fill_n(to, row_room_, std::int16_t{0});
    parts[i] = {
        .bit = bits_[parts_before(decoded_)], .blocks = to, .end = to + row_room_ - kOverrun};
  }
  row_lanes_.run(std::span(parts).first(i));
}

void IndexedScan::decode_pieces() {
  while (undone_[slot_at(row_)] > 0) {
    start_pieces();
    for (std::uint32_t left = piece_lanes_.run(); left != 0; left &= left - 1)
      --undone_[slot_at(lane_rows_[static_cast<std::size_t>(std::countr_zero(left))])];
  }
  undone_[slot_at(row_)] = row_parts_;
}

void IndexedScan::start_pieces() {
  const std::size_t mcu = tables_->mcu_blocks() * kBlock;
  for (std::uint32_t free = piece_lanes_.free(); free != 0; free &= free - 1) {
    const int row = first_row_ + static_cast<int>(next_piece_ / row_parts_);
    if (row >= end_ || row >= row_ + static_cast<int>(slots_)) return;
    const std::size_t part = next_piece_ % row_parts_;
    const std::size_t step = static_cast<std::size_t>(index_->step()) * mcu;
    const std::size_t first = row_at(row) + part * step;
    const std::size_t end = std::min(first + step, row_at(row) + row_room_ - kOverrun);
    std::fill(blocks_ + first, blocks_ + end, std::int16_t{0});
    const auto lane = static_cast<std::size_t>(std::countr_zero(free));
    lane_rows_[lane] = row;
    piece_lanes_.start(lane, {.bit = bits_[next_piece_++],
                              .first = static_cast<std::uint32_t>(first),
                              .end = static_cast<std::uint32_t>(end)});
  }
}

// The first coefficient of each block is told as its difference from the one before it.
bool IndexedScan::add_up_dc() {
  std::array<std::int16_t, 3> dc = index_->at(row_, mcus_.first).dc;
  std::int16_t* block = blocks_ + row_at(row_);
  for (int mcu = mcus_.first; mcu < mcus_.end;) {
    const int end = std::min(mcu + index_->step(), mcus_.end);
    for (; mcu < end; ++mcu) {
      for (std::size_t i = 0; i < tables_->mcu_blocks(); ++i, block += kBlock) {
        std::int16_t& sum = dc[tables_->block(i).component];
        sum = static_cast<std::int16_t>(sum + *block);
        *block = sum;
      }
    }
    if (index_->has(end) && index_->at(row_, end).dc != dc) return false;
  }
  return true;
}

}  // namespace spdld::media

// SPDX-License-Identifier: Apache-2.0
#include "media/scan_pass.h"

#include "media/seek_index.h"

namespace spdld::media {
namespace {

// The end of an image.
constexpr std::byte kEoi{0xD9};

// Looks for which the bits that a first coefficient leaves of a load are enough: its code is one of
// the table's.
constexpr int kLooksBehindDc =
    (ScanBytes::kLoaded - HuffmanTable::kBits - kMostDcSize) / HuffmanTable::kBits;

}  // namespace

bool ScanPass::begin(const ScanTables& tables, std::span<const std::byte> scan, int step) {
  tables_ = &tables;
  step_ = step;
  at_ = 0;
  dc_ = {};
  stuffed_ = 0;
  entries_.clear();
  if (scan.size() > SeekIndex::kMostBytes) return false;
  bytes_.reset(scan.size(), 1);
  const std::size_t end = bytes_.add(scan, 0, scan.size());
  scan_bits_ = (end - bytes_.stuffed().size()) * 8;
  return end < SeekIndex::kMostBytes && scan.size() - end >= 2 && scan[end + 1] == kEoi;
}

bool ScanPass::read_row(const McuSpan& kept) {
  const std::size_t mcu = tables_->mcu_blocks() * kBlock;
  blocks_.assign(static_cast<std::size_t>(kept.count()) * mcu, 0);
  std::int16_t* block = blocks_.data();
  for (int column = 0; column < tables_->mcus_across(); ++column) {
    if (column % step_ == 0) push();
    if (!kept.contains(column)) {
      if (!read_mcu<false>(nullptr)) return false;
    } else {
      if (!read_mcu<true>(block)) return false;
      block += mcu;
    }
  }
  return at_ <= scan_bits_;
}

std::span<const std::uint64_t> ScanPass::end() {
  push();
  // What is left of the last byte is padding.
  if (scan_bits_ - at_ >= 8) return {};
  return entries_;
}

void ScanPass::push() {
  const std::uint64_t byte = at_ / 8;
  const std::span<const std::uint32_t> stuffed = bytes_.stuffed();
  while (stuffed_ < stuffed.size() && stuffed[stuffed_] < byte) ++stuffed_;
  SeekIndex::Entry entry{.byte = static_cast<std::uint32_t>(byte + stuffed_),
                         .bit = static_cast<std::uint32_t>(at_ % 8)};
  for (std::size_t i = 0; i < dc_.size(); ++i) entry.dc[i] = static_cast<std::int16_t>(dc_[i]);
  entries_.push_back(entry.packed());
}

template <bool kKeep>
bool ScanPass::read_mcu(std::int16_t* block) {
  for (std::size_t i = 0; i < tables_->mcu_blocks(); ++i) {
    const ScanTables::Block& tables = tables_->block(i);
    if (!read_block<kKeep>(tables, dc_[tables.component], block)) return false;
    if (kKeep) block += kBlock;
  }
  return true;
}

template <bool kKeep>
bool ScanPass::read_block(const ScanTables::Block& tables, std::int32_t& dc, std::int16_t* block) {
  bits_ = bytes_.load(at_);
  const HuffmanTable::Entry entry(tables.dc->entries()[HuffmanTable::index_of(bits_)]);
  if (__builtin_expect(entry.fits(), 1)) {
    dc += entry.first();
    skip(entry.length());
  } else if (!entry.is_empty()) {
    dc += HuffmanTable::value_of(bits_ << entry.length(), static_cast<int>(entry.size()));
    skip(entry.length() + entry.size());
  } else if (!read_dc(*tables.dc, dc)) {
    return false;
  }
  if (dc < -SeekIndex::kMostDc - 1 || dc > SeekIndex::kMostDc) return false;
  if (kKeep) block[0] = static_cast<std::int16_t>(dc);
  return read_rest<kKeep>(*tables.ac, block);
}

bool ScanPass::read_dc(const HuffmanTable& table, std::int32_t& dc) {
  const HuffmanTable::Symbol symbol = table.find(static_cast<std::uint32_t>(bits_ >> 48));
  dc += HuffmanTable::value_of(bits_ << symbol.length, symbol.size);
  at_ += static_cast<std::uint64_t>(symbol.length + symbol.size);
  bits_ = bytes_.load(at_);
  return symbol.length > 0;
}

// All coefficients of a block but the first.
template <bool kKeep>
bool ScanPass::read_rest(const HuffmanTable& table, std::int16_t* block) {
  const std::uint32_t* const entries = table.entries();
  std::uint64_t at = at_;
  std::uint64_t bits = bits_;  // what the first coefficient has left of them spares a load
  std::uint32_t k = 1;
  for (int looks = kLooksBehindDc;; looks = HuffmanTable::kLooks, bits = bytes_.load(at)) {
    for (int i = 0; i < looks; ++i) {
      const HuffmanTable::Entry entry(entries[HuffmanTable::index_of(bits)]);
      const std::uint32_t next = k + entry.advance();
      const std::uint32_t first = k + entry.run();
      if (__builtin_expect(!entry.fits(), 0)) {
        if (entry.is_empty()) {
          at_ = at;
          if (!read_symbol<kKeep>(table, HuffmanTable::kBits + 1, k, block)) return false;
          at = at_;
        } else {
          if (first >= kBlock) return false;
          const std::uint32_t size = entry.size();
          if (kKeep)
            block[first] = static_cast<std::int16_t>(
                HuffmanTable::value_of(bytes_.load(at + entry.length()), static_cast<int>(size)));
          at += entry.length() + size;
          k = first + 1;
        }
        if (k >= kBlock) {
          at_ = at;
          return true;
        }
        break;
      }
      if (next >= kBlock) {
        const bool ends = entry.advance() >= HuffmanTable::Entry::kToEnd - 1;
        if (__builtin_expect(ends && first + 1 < kBlock, 1)) {
          if (kKeep) block[first] = entry.first();
          at_ = at + entry.length();
          return true;
        }
        // The first of the two is the block's last, and the second does not belong to it.
        at_ = at;
        while (k < kBlock) {
          if (!read_symbol<kKeep>(table, 1, k, block)) return false;
        }
        return true;
      }
      if (kKeep) {
        block[next - 1] = entry.second();  // before the first, which may be the same
        block[first] = entry.first();
      }
      bits <<= entry.length();
      at += entry.length();
      k = next;
    }
  }
}

template <bool kKeep>
bool ScanPass::read_symbol(const HuffmanTable& table, int least, std::uint32_t& k,
                           std::int16_t* block) {
  const std::uint64_t bits = bytes_.load(at_);
  const HuffmanTable::Symbol symbol = table.find(static_cast<std::uint32_t>(bits >> 48), least);
  if (symbol.length == 0) return false;
  at_ += static_cast<std::uint64_t>(symbol.length + symbol.size);
  const std::uint32_t at = k + static_cast<std::uint32_t>(symbol.run);
  k = symbol.ends_block ? kBlock : at + 1;
  if (k > kBlock) return false;
  if (kKeep && !symbol.ends_block)
    block[at] =
        static_cast<std::int16_t>(HuffmanTable::value_of(bits << symbol.length, symbol.size));
  return true;
}

}  // namespace spdld::media

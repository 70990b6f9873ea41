// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/scan_pass.h"

#include "media/jpeg_scan/seek_index.h"

namespace spdld::media {
namespace {

// Looks for which the bits that a first coefficient leaves of a load are enough. Behind one whose
// code is longer than the table's, more are loaded.
constexpr int kLooksBehindDc =
    (ScanBytes::kLoaded - HuffmanTable::kBits - kMostDcSize) / HuffmanTable::kBits;

}  // namespace

void ScanPass::begin(const ScanTables& tables, WholeScan& scan, int step) {
  tables_ = &tables;
  scan_ = &scan;
  step_ = step;
  in_ = {};
  dc_ = {};
  scan.restart();
}

bool ScanPass::read_row(const McuSpan& kept) {
  const std::size_t mcu = tables_->mcu_blocks() * kBlock;
  blocks_.assign(static_cast<std::size_t>(kept.count()) * mcu, 0);
  std::int16_t* block = blocks_.data();
  for (int column = 0; column < tables_->mcus_across(); ++column) {
    if (column % step_ == 0 && !push()) return false;
    if (!kept.contains(column)) {
      if (!read_mcu<false>(nullptr)) return false;
    } else {
      if (!read_mcu<true>(block)) return false;
      block += mcu;
    }
  }
  return in_.at() <= scan_->bits();
}

std::span<const std::uint64_t> ScanPass::end() {
  if (!scan_->ends_at(in_.at()) || !push()) return {};
  return scan_->entries();
}

// The bits are a variable of its own, since a member would be stored and loaded with each block.
template <bool kKeep>
bool ScanPass::read_mcu(std::int16_t* block) {
  ScanBits in = in_;
  for (std::size_t i = 0; i < tables_->mcu_blocks(); ++i) {
    const ScanTables::Block& tables = tables_->block(i);
    if (!read_dc(*tables.dc, in, dc_[tables.component])) return false;
    if (kKeep) block[0] = static_cast<std::int16_t>(dc_[tables.component]);
    if (!read_rest<kKeep>(*tables.ac, in, block)) return false;
    if (kKeep) block += kBlock;
  }
  in_ = in;
  return true;
}

// The first coefficient of a block.
__attribute__((always_inline)) inline bool ScanPass::read_dc(const HuffmanTable& table,
                                                             ScanBits& in, std::int32_t& dc) {
  in.refill(scan_->bytes());
  const HuffmanTable::Entry& entry = table.entries()[HuffmanTable::index_of(in.bits())];
  if (__builtin_expect(entry.fits(), 1)) {
    dc += entry.first();
    in.skip(entry.length);
  } else if (!entry.is_empty()) {
    in.skip(entry.length);
    dc += HuffmanTable::value_of(in.bits(), entry.size());
    in.skip(static_cast<std::uint32_t>(entry.size()));
  } else {
    in_ = in;
    if (!read_long_dc(table, dc)) return false;
    in = in_;
  }
  return SeekIndex::can_tell(dc);
}

bool ScanPass::read_long_dc(const HuffmanTable& table, std::int32_t& dc) {
  const HuffmanTable::Symbol symbol = table.find(static_cast<std::uint32_t>(in_.bits() >> 48));
  dc += symbol.value_in(in_.bits());
  in_.skip(static_cast<std::uint32_t>(symbol.length + symbol.size));
  in_.refill(scan_->bytes());
  return symbol.length > 0;
}

// All coefficients of a block but the first, which has left enough bits for some looks.
template <bool kKeep>
__attribute__((always_inline)) inline bool ScanPass::read_rest(const HuffmanTable& table,
                                                               ScanBits& in, std::int16_t* block) {
  const HuffmanTable::Entry* const entries = table.entries();
  std::uint32_t k = 1;
  for (int looks = kLooksBehindDc;; looks = HuffmanTable::kLooks, in.refill(scan_->bytes())) {
    for (int i = 0; i < looks; ++i) {
      const HuffmanTable::Entry& entry = entries[HuffmanTable::index_of(in.bits())];
      const std::uint32_t length = entry.length;
      const std::uint32_t next = k + entry.advance;
      const std::uint32_t first = k + static_cast<std::uint32_t>(entry.run());
      if (__builtin_expect(!entry.fits(), 0)) {
        if (entry.is_empty()) {
          in_ = in;
          k = read_symbol<kKeep>(table, HuffmanTable::kBits + 1, k, block);
          if (k == 0) return false;
          in = in_;
        } else {
          if (first >= kBlock) return false;
          in.skip(length);
          in.refill(scan_->bytes());
          if (kKeep)
            block[first] =
                static_cast<std::int16_t>(HuffmanTable::value_of(in.bits(), entry.size()));
          in.skip(static_cast<std::uint32_t>(entry.size()));
          k = first + 1;
        }
        if (k >= kBlock) return true;
        break;
      }
      if (next >= kBlock) {
        const bool ends = entry.advance >= HuffmanTable::Entry::kToEnd;
        if (__builtin_expect(ends && first + 1 < kBlock, 1)) {
          if (kKeep) block[first] = entry.first();
          in.skip(length);
          return true;
        }
        // The first of the two is the block's last, and the second does not belong to it.
        in_ = in;
        while (k != 0 && k < kBlock) k = read_symbol<kKeep>(table, 1, k, block);
        in = in_;
        return k != 0;
      }
      if (kKeep) {
        block[next - 1] = entry.second();  // before the first, which may be the same
        block[first] = entry.first();
      }
      in.skip(length);
      k = next;
    }
  }
}

template <bool kKeep>
std::uint32_t ScanPass::read_symbol(const HuffmanTable& table, int least, std::uint32_t k,
                                    std::int16_t* block) {
  in_.refill(scan_->bytes());
  const std::uint64_t bits = in_.bits();
  const HuffmanTable::Symbol symbol = table.find(static_cast<std::uint32_t>(bits >> 48), least);
  if (symbol.length == 0) return 0;
  in_.skip(static_cast<std::uint32_t>(symbol.length + symbol.size));
  if (symbol.ends_block) return kBlock;
  const std::uint32_t at = k + static_cast<std::uint32_t>(symbol.run);
  if (at >= kBlock) return 0;
  if (kKeep) block[at] = static_cast<std::int16_t>(symbol.value_in(bits));
  return at + 1;
}

}  // namespace spdld::media

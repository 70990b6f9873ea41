// SPDX-License-Identifier: Apache-2.0
#include "transform/image/column_resizer.h"

#include <algorithm>
#include <cstring>

#include "transform/scratch/grow.h"

namespace spdld::transform {
namespace {

// Which of the filter's outputs column x shows; those past the last one repeat it.
int output_of(std::size_t x, int size, bool flip) {
  const int column = std::min(static_cast<int>(x), size - 1);
  return flip ? size - 1 - column : column;
}

}  // namespace

void ColumnResizer::plan(const AxisFilter& filter, int channels, bool flip) {
  channels_ = channels;
  row_bytes_ = static_cast<std::size_t>((filter.source_end() - filter.source_begin()) * channels);
  const auto size = static_cast<std::size_t>(filter.size());
  columns_ = (size + kColumnGroup - 1) / kColumnGroup * kColumnGroup;
  plan_offsets(filter, flip);
  uses_windows_ = channels == 3 && has_avx512_ && plan_windows(filter, flip);
  if (uses_windows_) return;
  plan_pairs(filter, flip);
  plan_tail();
}

void ColumnResizer::plan_offsets(const AxisFilter& filter, bool flip) {
  grow(offsets_, columns_);
  for (std::size_t x = 0; x < columns_; ++x) {
    const AxisFilter::Span& span = filter.span(output_of(x, filter.size(), flip));
    offsets_[x] = (span.first - filter.source_begin()) * channels_;
  }
}

// False when a group's columns lie too far apart for one window.
bool ColumnResizer::plan_windows(const AxisFilter& filter, bool flip) {
  constexpr std::int32_t kQuadBytes = 12;  // four taps of three channels
  constexpr auto kWindowBytes = static_cast<std::int32_t>(avx512::kWindowBytes);
  const std::size_t groups = columns_ / kColumnGroup;
  const auto quads = static_cast<std::size_t>((filter.max_count() + 3) / 4);
  const auto row_bytes = static_cast<std::int32_t>(row_bytes_);
  const std::int32_t reach = kWindowBytes + (static_cast<std::int32_t>(quads) - 1) * kQuadBytes;
  const std::size_t group_patterns = 4;
  const std::size_t group_digits = quads * 4 * avx512::kDigits;
  grow(bases_, groups);
  grow(patterns_, groups * group_patterns);
  grow(digits_, groups * group_digits);
  for (std::size_t group = 0; group < groups; ++group) {
    const std::int32_t* const offsets = offsets_.data() + group * kColumnGroup;
    const auto [first, last] = std::minmax_element(offsets, offsets + kColumnGroup);
    if (*last - *first + kQuadBytes > kWindowBytes) return false;
    // A window that ends with the row is read without masks. With one quad a pattern may then point
    // past it, where the weights are 0; with more it must not.
    const std::int32_t fitting = std::min(*first, row_bytes - reach);
    const bool fits = fitting >= 0 && (quads == 1 || *last - fitting + kQuadBytes <= kWindowBytes);
    const std::int32_t base = fits ? fitting : *first;
    bases_[group] = base;
    std::int32_t from[kColumnGroup];
    const std::int32_t* weights[kColumnGroup];
    for (std::size_t column = 0; column < kColumnGroup; ++column) {
      from[column] = offsets[column] - base;
      weights[column] =
          filter.weights(output_of(group * kColumnGroup + column, filter.size(), flip));
    }
    avx512::plan_group(weights, from, static_cast<int>(quads),
                       patterns_.data() + group * group_patterns,
                       digits_.data() + group * group_digits);
  }
  windows_ = {.bases = bases_.data(),
              .patterns = patterns_.data(),
              .weights = digits_.data(),
              .groups = groups,
              .quads = static_cast<int>(quads)};
  return true;
}

void ColumnResizer::plan_pairs(const AxisFilter& filter, bool flip) {
  const int taps = filter.max_count();
  const auto pairs = static_cast<std::size_t>((taps + 1) / 2);
  grow(pair_weights_, 2 * pairs * columns_);
  std::uint32_t* const high = pair_weights_.data();
  std::uint32_t* const low = high + pairs * columns_;
  for (std::size_t x = 0; x < columns_; ++x) {
    const std::int32_t* const weights = filter.weights(output_of(x, filter.size(), flip));
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const WeightPair split = WeightPair::of(weights[2 * pair], weights[2 * pair + 1]);
      high[pair * columns_ + x] = split.high;
      low[pair * columns_ + x] = split.low;
    }
  }
  pairs_ = {
      .offsets = offsets_.data(), .high = high, .low = low, .columns = columns_, .taps = taps};
}

void ColumnResizer::plan_tail() {
  const std::size_t reach = column_reach_bytes(pairs_.taps, channels_);
  const auto reads_past = [&](std::size_t group) {
    const auto begin = offsets_.begin() + static_cast<std::ptrdiff_t>(group);
    const std::int32_t last = *std::max_element(begin, begin + kColumnGroup);
    return static_cast<std::size_t>(last) + reach > row_bytes_;
  };
  // Offsets ascend, or mirrored descend, but for a pixel where a filter's first weight is 0.
  const bool ascends = offsets_[0] <= offsets_[columns_ - 1];
  tail_begin_ = ascends ? columns_ : 0;
  tail_end_ = tail_begin_;
  for (std::size_t group = 0; group < columns_; group += kColumnGroup) {
    if (!reads_past(group)) continue;
    if (ascends) {
      tail_begin_ = std::min(tail_begin_, group);
    } else {
      tail_end_ = group + kColumnGroup;
    }
  }
  if (tail_begin_ == tail_end_) return;
  const auto begin = offsets_.begin() + static_cast<std::ptrdiff_t>(tail_begin_);
  const auto end = offsets_.begin() + static_cast<std::ptrdiff_t>(tail_end_);
  const std::int32_t origin = *std::min_element(begin, end);
  for (auto offset = begin; offset != end; ++offset) *offset -= origin;
  tail_source_ = static_cast<std::size_t>(origin);
  grow(tail_, row_bytes_ - tail_source_ + reach);
}

void ColumnResizer::resize(const std::uint8_t* pixels, const RowTarget& target) {
  if (uses_windows_) {
    avx512::resize_row(pixels, row_bytes_, windows_, target);
    return;
  }
  const auto groups = [&](const std::uint8_t* from, std::size_t begin, std::size_t end) {
    if (begin < end) resize_row(from, pairs_, begin, end, channels_, target);
  };
  groups(pixels, 0, tail_begin_);
  if (tail_begin_ < tail_end_) {
    std::memcpy(tail_.data(), pixels + tail_source_, row_bytes_ - tail_source_);
    groups(tail_.data(), tail_begin_, tail_end_);
  }
  groups(pixels, tail_end_, columns_);
}

}  // namespace spdld::transform

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transform/image/axis_filter.h"
#include "transform/image/row_kernels.h"
#include "transform/image/row_kernels_avx512.h"
#include "transform/scratch/aligned_vector.h"

namespace spdld::transform {

// Resizes rows: an AxisFilter brought into the form that this machine's row kernels want. Owned by
// an ImagePass; not thread-safe; its tables grow and are reused.
class ColumnResizer {
 public:
  explicit ColumnResizer(bool has_avx512) : has_avx512_(has_avx512) {}

  // Rows will hold the filter's [source_begin, source_end). Columns come mirrored if `flip`.
  void plan(const AxisFilter& filter, int channels, bool flip);

  // Reads nothing outside the row; writes up to kRowSlack bytes past it.
  void resize(const std::uint8_t* pixels, const RowTarget& target);

 private:
  void plan_offsets(const AxisFilter& filter, bool flip);
  bool plan_windows(const AxisFilter& filter, bool flip);
  void plan_pairs(const AxisFilter& filter, bool flip);
  void plan_tail();

  const bool has_avx512_;
  int channels_ = 0;
  std::size_t row_bytes_ = 0;
  std::size_t columns_ = 0;            // rounded up to whole groups
  std::vector<std::int32_t> offsets_;  // of each column's first tap, in bytes
  bool uses_windows_ = false;

  // For row_kernels_avx512.h.
  avx512::WindowTable windows_;
  std::vector<std::int32_t> bases_;
  AlignedVector<avx512::WindowVector> patterns_;
  AlignedVector<avx512::WindowVector> digits_;

  // For row_kernels.h. Groups [tail_begin_, tail_end_), the last ones or, mirrored, the first ones,
  // would read past the row: they work on a copy of its end, from where their offsets count.
  ColumnTable pairs_;
  std::vector<std::uint32_t> pair_weights_;
  std::size_t tail_begin_ = 0;
  std::size_t tail_end_ = 0;
  std::size_t tail_source_ = 0;  // first byte of the row that is in the copy
  std::vector<std::uint8_t> tail_;
};

}  // namespace spdld::transform

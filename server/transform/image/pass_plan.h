// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "op/geometry.h"
#include "op/image.h"
#include "transform/image/axis_filter.h"

namespace spdld::transform {

// Which source pixels an output is made of: a Geometry brought into a filter along each axis, and
// what follows from that for rows that come one after the other. Owned by one pass; not
// thread-safe; its tables grow and are reused.
class PassPlan {
 public:
  // A part of the output along one axis: outputs [begin, begin + size) show the image, those before
  // and after it are 0.
  struct Shown {
    int begin = 0;
    int size = 0;
  };

  // The part of the source that the window depends on; empty when it lies beside the image. With
  // `exact` the filters have weights in double precision, too.
  Rect build(const Geometry& geometry, bool exact);

  const Shown& columns() const { return columns_; }  // before they are mirrored
  const Shown& rows() const { return rows_; }
  bool resizes_columns() const { return resizes_columns_; }
  bool resizes_rows() const { return resizes_rows_; }
  const AxisFilter& column_filter() const { return column_filter_; }
  const AxisFilter& row_filter() const { return row_filter_; }

  // Of source rows, whose columns are made, so many are needed at a time.
  int kept_rows() const { return kept_rows_; }
  // Where rows are resized: shown output `i` needs source rows before complete_at() of the crop,
  // and no output from it on needs rows before needed_from().
  int complete_at(int i) const { return complete_at_[static_cast<std::size_t>(i)]; }
  int needed_from(int i) const { return needed_from_[static_cast<std::size_t>(i)]; }

 private:
  void plan_rows(const AxisFilter::Request& request);

  Shown columns_;
  Shown rows_;
  bool resizes_columns_ = false;
  bool resizes_rows_ = false;
  AxisFilter column_filter_;
  AxisFilter row_filter_;
  int kept_rows_ = 1;
  std::vector<int> complete_at_;
  std::vector<int> needed_from_;
};

}  // namespace spdld::transform

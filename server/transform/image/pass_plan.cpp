// SPDX-License-Identifier: Apache-2.0
#include "transform/image/pass_plan.h"

#include <algorithm>

namespace spdld::transform {
namespace {

// The request for the part [from, from + size) of an axis scaled to `out` pixels.
AxisFilter::Request request_for(const Geometry& geometry, bool exact, int in, int out, int from,
                                int size) {
  return {.in = in,
          .out = out,
          .begin = std::max(from, 0),
          .end = std::min(from + size, out),
          .interpolation = geometry.interpolation,
          .antialias = geometry.antialias,
          .exact = exact};
}

}  // namespace

Rect PassPlan::build(const Geometry& geometry, bool exact) {
  const Rect& crop = geometry.crop;
  const Rect& window = geometry.window;
  const AxisFilter::Request columns =
      request_for(geometry, exact, crop.width, geometry.scaled.width, window.x, window.width);
  const AxisFilter::Request rows =
      request_for(geometry, exact, crop.height, geometry.scaled.height, window.y, window.height);
  columns_ = {columns.begin - window.x, columns.end - columns.begin};
  rows_ = {rows.begin - window.y, rows.end - rows.begin};
  const bool empty = columns_.size <= 0 || rows_.size <= 0;
  if (empty) {
    columns_ = rows_ = {};
    return {};
  }
  resizes_columns_ = columns.in != columns.out;
  Rect region{crop.x + columns.begin, crop.y + rows.begin, columns_.size, rows_.size};
  if (resizes_columns_) {
    column_filter_.build(columns);
    region.x = crop.x + column_filter_.source_begin();
    region.width = column_filter_.source_end() - column_filter_.source_begin();
  }
  resizes_rows_ = rows.in != rows.out;
  if (resizes_rows_) {
    plan_rows(rows);
    region.y = crop.y + row_filter_.source_begin();
    region.height = row_filter_.source_end() - row_filter_.source_begin();
  } else {
    kept_rows_ = 1;
  }
  return region;
}

void PassPlan::plan_rows(const AxisFilter::Request& request) {
  if (row_filter_.build(request)) {
    const auto size = static_cast<std::size_t>(row_filter_.size());
    complete_at_.resize(size);
    needed_from_.resize(size);
    int complete = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const AxisFilter::Span& span = row_filter_.span(static_cast<int>(i));
      complete = std::max(complete, span.first + span.count);
      complete_at_[i] = complete;
    }
    int needed = request.in;
    for (std::size_t i = size; i-- > 0;) {
      needed = std::min(needed, row_filter_.span(static_cast<int>(i)).first);
      needed_from_[i] = needed;
    }
  }
  kept_rows_ = 1;
  for (std::size_t i = 0; i < complete_at_.size(); ++i) {
    kept_rows_ = std::max(kept_rows_, complete_at_[i] - needed_from_[i]);
  }
}

}  // namespace spdld::transform
